"""The package as a plugin: metadata, lightness, its README. ``UPDATE_DOCUMENTS=1`` writes the table of options anew."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import thunder
from thunder_core.errors import ConfigError
from thunder_core.plugins import API, ExecutorOptions
from thunder_plugin_triton.executor import from_options
from thunder_plugin_triton.options import TritonOptions

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def table() -> str:
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    properties = TritonOptions.model_json_schema()["properties"]
    for name, field in TritonOptions.model_fields.items():
        if name not in ExecutorOptions.model_fields:
            meaning = " ".join(field.description.split())
            rows.append(f"| `{name}` | {properties[name]['type']} | `{field.default!r}` | {meaning} |")
    return "\n".join(rows)


def test_options_in_the_readme() -> None:
    text = README.read_text()
    found = re.search(r"<!-- options -->\n\n?(.*?)\n## ", text, re.DOTALL)
    if os.environ.get("UPDATE_DOCUMENTS"):
        README.write_text(text.replace(found[0], f"<!-- options -->\n{table()}\n\n## "))
    else:
        assert found[1].strip() == table()


def test_examples_in_the_readme() -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, names)


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["thunder.plugins"] == {"triton": "thunder_plugin_triton.plugin"}
    assert project["entry-points"]["thunder.plugin_api"] == {"triton": str(API)}
    assert project["optional-dependencies"]["lib"] == ["triton>=3.4,<4"]


def test_importing_the_plugin_is_light() -> None:
    code = "import sys, thunder_plugin_triton.plugin as p; p.thunder_executors(); "
    code += "print({'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_equal_options_are_one_executor() -> None:
    assert from_options(TritonOptions()) is from_options(TritonOptions())
    assert from_options(TritonOptions()) is not from_options(TritonOptions(autotune=False))


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match="did you mean 'autotune'"):
        thunder.jit(lambda x: x, executors=[{"triton": {"autotuned": True}}])

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
from thunder_plugin_sdpa.executor import from_options
from thunder_plugin_sdpa.options import SdpaOptions

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def table() -> str:
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    properties = SdpaOptions.model_json_schema()["properties"]
    for name, field in SdpaOptions.model_fields.items():
        if name not in ExecutorOptions.model_fields:
            schema = properties[name]
            names = ", ".join(f"`{value}`" for value in schema.get("items", {}).get("enum", ()))
            values = f"list of {names}" if names else schema["type"]
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            rows.append(f"| `{name}` | {values} | `{default!r}` | {' '.join(field.description.split())} |")
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
    assert project["entry-points"]["thunder.plugins"] == {"sdpa": "thunder_plugin_sdpa.plugin"}
    assert project["entry-points"]["thunder.plugin_api"] == {"sdpa": str(API)}


def test_importing_the_plugin_is_light() -> None:
    code = "import sys, thunder_plugin_sdpa.plugin as p; p.thunder_executors(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_equal_options_are_one_executor() -> None:
    assert from_options(SdpaOptions(backends=("flash",))) is from_options(SdpaOptions(backends=("flash",)))
    assert from_options(SdpaOptions()) is not from_options(SdpaOptions(grouped=False))


@pytest.mark.parametrize("options", [{"backends": ["flsh"]}, {"backends": []}, {"groupd": True}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        thunder.jit(lambda x: x, executors=[{"sdpa": options}])

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
from fake_transformer_engine import REAL

import thunder
from thunder_core.errors import ThunderError
from thunder_core.plugins import API, ExecutorOptions
from thunder_plugin_te.executor import from_options
from thunder_plugin_te.options import TeOptions

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def kind(schema: dict[str, Any]) -> str:
    """A type of a JSON schema in words."""
    if "anyOf" in schema:
        return ", ".join(kind(part) for part in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    names = {"array": "list of patterns", "null": "null"}
    least = f", at least {schema['minimum']}" if "minimum" in schema else ""
    return names.get(schema["type"], schema["type"]) + least


def table() -> str:
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    properties = TeOptions.model_json_schema()["properties"]
    for name, field in TeOptions.model_fields.items():
        if name not in ExecutorOptions.model_fields:
            default = list(field.default) if isinstance(field.default, tuple) else field.default
            meaning = " ".join((field.description or "").split())
            rows.append(f"| `{name}` | {kind(properties[name])} | `{default!r}` | {meaning} |")
    return "\n".join(rows)


def test_options_in_the_readme() -> None:
    text = README.read_text()
    found = re.search(r"<!-- options -->\n\n?(.*?)\n## ", text, re.DOTALL)
    assert found is not None
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
    assert project["entry-points"]["thunder.plugins"] == {"te": "thunder_plugin_te.plugin"}
    assert project["entry-points"]["thunder.plugin_api"] == {"te": str(API)}


def test_importing_the_plugin_is_light() -> None:
    code = (
        "import sys, thunder_plugin_te.plugin as p; p.thunder_executors(); "
        "print({'torch', 'transformer_engine'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_equal_options_are_one_executor() -> None:
    assert from_options(TeOptions(recipe="block")) is from_options(TeOptions(recipe="block"))
    assert from_options(TeOptions()) is not from_options(TeOptions(margin=1))


@pytest.mark.parametrize("options", [{"recipe": "tensorwise"}, {"least_tokens": 0}, {"recip": "block"}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ThunderError):
        thunder.jit(lambda x: x, executors=[{"te": options}])


@pytest.mark.skipif(REAL, reason="Transformer Engine is installed")
def test_without_the_library() -> None:
    with pytest.raises(ThunderError, match=r"transformer-engine.*not installed"):
        thunder.jit(lambda x: x, executors=["te"])
    program = thunder.jit(lambda x: x + 1, executors=[{"te": {"optional": True}}])
    assert program(1.0) == 2.0

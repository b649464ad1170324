"""The package as a plugin: metadata, specifications, lightness, its README."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import thunder_plugin_debug
from thunder_core.passes.transform import Place, Transform
from thunder_core.plugins import API, TransformSpec
from thunder_plugin_debug import plugin
from thunder_plugin_debug.options import LineCallbacksOptions, LineOptions

ROOT = Path(__file__).resolve().parents[1]
SPECS = {spec.name: spec for spec in plugin.thunder_transforms()}


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name,) = project["entry-points"]["thunder.plugins"]
    assert import_module(project["entry-points"]["thunder.plugins"][name]) is plugin
    assert project["entry-points"]["thunder.plugin_api"] == {name: str(API)}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_specifications(spec: TransformSpec) -> None:
    if spec.name == "nvtx_ranges":
        pytest.importorskip("torch._C._nvtx", reason="PyTorch was built without CUDA")
    module, _, name = spec.load.partition(":")
    options: Any = spec.options()
    if spec.name == "line_callbacks":
        options = LineCallbacksOptions(before_line="builtins:print", include=("a",))
    transform = getattr(import_module(module), name)(options)
    assert isinstance(transform, Transform)
    assert (transform.name, transform.place) == (spec.name, Place.LAST)
    assert spec.summary


def test_options_reach_the_transforms() -> None:
    """Each option that is not about whether the transform is there is an attribute of it."""
    for spec in SPECS.values():
        module = import_module(spec.load.partition(":")[0])
        (kind,) = [value for value in vars(module).values() if getattr(value, "name", None) == spec.name]
        given = set(spec.options.model_fields) - {"enabled", "optional"}
        assert given == {field.name for field in fields(kind)}, spec.name


def test_the_light_module_is_light() -> None:
    """Hooks and options are there without PyTorch, and the package without any of its modules."""
    code = (
        "import sys, thunder_plugin_debug, thunder_plugin_debug.plugin as plugin\n"
        "assert len(plugin.thunder_transforms()) == 5\n"
        "print(sorted(name for name in sys.modules if name == 'torch' or name.startswith('thunder_plugin_debug')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(
        ["thunder_plugin_debug", "thunder_plugin_debug.options", "thunder_plugin_debug.plugin"]
    )


def test_what_the_package_exports() -> None:
    for name in thunder_plugin_debug.__all__:
        assert getattr(thunder_plugin_debug, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Bisection'"):
        _ = thunder_plugin_debug.Bisection


def test_examples_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2
    assert "torch.nn.functional.gelu" in capsys.readouterr().out


TABLE = re.compile(r"(?<=<!-- options -->\n).*?(?=<!-- end of options -->)", re.DOTALL)


def test_options_in_the_readme() -> None:
    """``UPDATE_DOCUMENTS=1`` writes the tables anew."""
    path = ROOT / "README.md"
    text = path.read_text()
    expected = TABLE.sub(lambda _: f"\n{options_tables()}\n", text)
    if os.environ.get("UPDATE_DOCUMENTS"):
        path.write_text(expected)
    else:
        assert text == expected, "run UPDATE_DOCUMENTS=1 pytest plugins/debug/tests/test_plugin.py to accept"


def options_tables() -> str:
    shared = list(LineOptions.model_fields)
    tables = [_table("All of them", LineOptions, shared)]
    for spec in SPECS.values():
        own = [name for name in spec.options.model_fields if name not in shared]
        if own:
            tables.append(_table(f"`{spec.name}`", spec.options, own))
    return "\n".join(tables)


def _table(title: str, options: Any, names: list[str]) -> str:
    schema = options.model_json_schema()["properties"]
    rows = [_row(name, schema[name]) for name in names]
    return "\n".join([f"{title}:\n", "| option | values | default | meaning |", "|---|---|---|---|", *rows, ""])


def _row(name: str, schema: dict[str, Any]) -> str:
    meaning = " ".join(schema["description"].split())
    return f"| `{name}` | {_values(schema)} | `{_default(schema)}` | {meaning} |"


def _values(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(_values(one) for one in schema["anyOf"] if one["type"] != "null")
    names = {"boolean": "true, false", "array": "list of texts", "string": "text"}
    return names.get(schema["type"], schema["type"])


def _default(schema: dict[str, Any]) -> str:
    default = schema["default"]
    return {True: "true", False: "false", None: "none"}.get(default, default) if not isinstance(default, list) else "[]"

"""The package as a plugin: metadata, specification, lightness, its README."""

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

import thunder_plugin_cudagraphs
from thunder_core.plugins import API, TransformOptions
from thunder_plugin_cudagraphs import CUDAGraphs, plugin
from thunder_plugin_cudagraphs.options import CUDAGraphsOptions

ROOT = Path(__file__).resolve().parents[1]
OWN = [name for name in CUDAGraphsOptions.model_fields if name not in TransformOptions.model_fields]


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name,) = project["entry-points"]["thunder.plugins"]
    assert import_module(project["entry-points"]["thunder.plugins"][name]) is plugin
    assert project["entry-points"]["thunder.plugin_api"] == {name: str(API)}


def test_specification() -> None:
    (spec,) = plugin.thunder_transforms()
    module, _, name = spec.load.partition(":")
    transform = getattr(import_module(module), name)(spec.options())
    assert (spec.name, transform) == (CUDAGraphs.name, CUDAGraphs())


def test_options_are_the_fields() -> None:
    assert [field.name for field in fields(CUDAGraphs)] == OWN


def test_the_light_module_is_light() -> None:
    code = (
        "import sys, thunder_plugin_cudagraphs, thunder_plugin_cudagraphs.plugin as plugin\n"
        "assert len(plugin.thunder_transforms()) == 1\n"
        "print(sorted(n for n in sys.modules if n == 'torch' or n.startswith('thunder_plugin_cudagraphs')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    expected = ["", ".options", ".plugin"]
    assert done.stdout.strip() == str([f"thunder_plugin_cudagraphs{name}" for name in expected])


def test_what_the_package_exports() -> None:
    for name in thunder_plugin_cudagraphs.__all__:
        assert getattr(thunder_plugin_cudagraphs, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Graphs'"):
        _ = thunder_plugin_cudagraphs.Graphs


def test_examples_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block, names)
    assert len(blocks) == 2
    assert "cudagraphs, inference" in capsys.readouterr().out


TABLE = re.compile(r"(?<=<!-- options -->\n).*?(?=<!-- end of options -->)", re.DOTALL)


def test_options_in_the_readme() -> None:
    """``UPDATE_DOCUMENTS=1`` writes the table anew."""
    path = ROOT / "README.md"
    text = path.read_text()
    expected = TABLE.sub(lambda _: f"\n{table()}\n\n", text)
    if os.environ.get("UPDATE_DOCUMENTS"):
        path.write_text(expected)
    else:
        assert text == expected, "run UPDATE_DOCUMENTS=1 pytest plugins/cudagraphs/tests/test_plugin.py to accept"


def table() -> str:
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for name in OWN:
        field = CUDAGraphsOptions.model_fields[name]
        default = list(field.default) if isinstance(field.default, tuple) else field.default
        rows.append(f"| `{name}` | `{default}` | {' '.join((field.description or '').split())} |")
    return "\n".join(rows)

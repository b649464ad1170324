"""The package as a plugin: metadata, lightness, its README. ``UPDATE_DOCUMENTS=1`` writes the table of options anew."""

from __future__ import annotations

import importlib.metadata
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
from thunder_core.plugins.host import host, reset_host
from thunder_core.plugins.states import PluginRecord, PluginState
from thunder_plugin_apex.executor import from_options
from thunder_plugin_apex.library import BUILD, FLAGS
from thunder_plugin_apex.options import ApexOptions

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def table() -> str:
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    properties = ApexOptions.model_json_schema()["properties"]
    for name, field in ApexOptions.model_fields.items():
        if name not in ExecutorOptions.model_fields:
            meaning = " ".join(str(field.description).split())
            rows.append(f"| `{name}` | {properties[name]['type']} | `{field.default!r}` | {meaning} |")
    return "\n".join(rows)


def test_options_in_the_readme() -> None:
    text = README.read_text()
    found = re.search(r"<!-- options -->\n\n?(.*?)\n## ", text, re.DOTALL)
    assert found
    if os.environ.get("UPDATE_DOCUMENTS"):
        README.write_text(text.replace(found[0], f"<!-- options -->\n{table()}\n\n## "))
    else:
        assert found[1].strip() == table()


def test_examples_in_the_readme() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    exec(blocks[0], {})


def test_the_command_in_the_readme() -> None:
    """The one that errors name."""
    command = BUILD.format(" ".join(FLAGS.values())).partition(": ")[2]
    assert f"\n{command}\n" in README.read_text()


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["thunder.plugins"] == {"apex": "thunder_plugin_apex.plugin"}
    assert project["entry-points"]["thunder.plugin_api"] == {"apex": str(API)}


def test_importing_the_plugin_is_light() -> None:
    code = "import sys, thunder_plugin_apex.plugin as p; p.thunder_executors(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("version", "state", "why"),
    [
        (None, PluginState.LIBRARY_MISSING, "it needs apex, which is not installed"),
        ("0.9.10.dev0", PluginState.VERSION_CONFLICT, "it needs apex==0.1.*, and apex 0.9.10.dev0 is installed"),
        ("0.1", PluginState.AVAILABLE, ""),
    ],
    ids=["none", "that of PyPI", "NVIDIA's"],
)
def test_which_apex_is_installed(
    version: str | None, state: PluginState, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As told from metadata; a real Apex is hidden by one that stands first on the path."""
    if version is None and _installed("apex"):
        pytest.skip("Apex is installed")
    if version is not None:
        folder = tmp_path / f"apex-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: apex\nVersion: {version}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
    reset_host()
    try:
        found = _record()
    finally:
        reset_host()
    assert (found.state, found.why) == (state, why)
    assert not why or found.advice == "see https://github.com/NVIDIA/apex#from-source"


def _record() -> PluginRecord:
    return next(record for record in host().records if record.name == "apex")


def _installed(name: str) -> bool:
    return any(found.metadata["Name"] == name for found in importlib.metadata.distributions())


def test_equal_options_are_one_executor() -> None:
    assert from_options(ApexOptions()) is from_options(ApexOptions())
    assert from_options(ApexOptions()) is not from_options(ApexOptions(memory_efficient=True))


def test_wrong_options() -> None:
    options: Any = {"apex": {"memory_eficient": True}}
    with pytest.raises(ConfigError):
        thunder.jit(lambda x: x, executors=[options])

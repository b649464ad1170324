"""The package as a plugin: metadata, lightness, states, README. ``UPDATE_DOCUMENTS=1`` writes its table anew."""

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
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState
from thunder_plugin_nvfuser import library
from thunder_plugin_nvfuser.options import NvfuserOptions

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"


def table() -> str:
    rows = ["| option | values | default | meaning |", "|---|---|---|---|"]
    properties = NvfuserOptions.model_json_schema()["properties"]
    for name, field in NvfuserOptions.model_fields.items():
        if name not in ExecutorOptions.model_fields:
            schema = properties[name]
            kinds = [kind["type"] for kind in schema.get("anyOf", [schema])]
            values = " or ".join(f"list of {schema['items']['type']}s" if kind == "array" else kind for kind in kinds)
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


def test_examples_in_the_readme_are_python() -> None:
    """They need a GPU; `test_cuda.py` runs what they do."""
    blocks = re.findall(r"^```py\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        compile(block, "README.md", "exec")


def test_metadata() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["thunder.plugins"] == {"nvfuser": "thunder_plugin_nvfuser.plugin"}
    assert project["entry-points"]["thunder.plugin_api"] == {"nvfuser": str(API)}
    text = README.read_text()
    assert all(extra in text for extra in project["optional-dependencies"] if extra.startswith("lib-"))


def test_importing_the_plugin_is_light() -> None:
    code = "import sys, thunder_plugin_nvfuser.plugin as p; p.thunder_executors(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


absent = pytest.mark.skipif(library.installed() != library.MODULE, reason="nvFuser is installed")


@absent
def test_without_the_library() -> None:
    (record,) = [record for record in host().records if record.name == "nvfuser"]
    assert record.state is PluginState.LIBRARY_MISSING
    assert "it needs one of nvfuser" in record.why
    assert "and none of them is installed" in record.why
    assert "lib-cu130-torch210" in record.advice
    with pytest.raises(ConfigError, match="it needs one of nvfuser"):
        thunder.jit(lambda x: x, executors=["nvfuser"])
    found = library.check()
    assert not found.ok
    assert found.text == "there is no module nvfuser_direct"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ImportError("x.so: undefined symbol: _ZN3c1013MessageLoggerC1EPKciib"), "preload the shim"),
        (ImportError("libtorch_cuda.so: cannot open shared object file"), "install the nvFuser that was built for it"),
    ],
)
def test_libraries_that_do_not_load(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Any:
        raise error

    monkeypatch.setattr(library.importlib, "import_module", refuse)
    with pytest.raises(ImportError, match=words) as caught:
        library.load_library()
    assert len(str(caught.value)) < 300  # of longer ones the report repeats the beginning


@pytest.mark.parametrize("options", [{"fuel": -1}, {"smallest": 0}, {"matmull": True}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        thunder.jit(lambda x: x, executors=[{"nvfuser": options}])

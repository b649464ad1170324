"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

import thunder
from thunder_core.errors import ConfigError
from thunder_core.plugins.host import host
from thunder_core.plugins.states import PluginState
from thunder_plugin_nvfuser import library
from thunder_plugin_nvfuser.options import NvfuserOptions
from thunder_testing import package_suite

test_package = package_suite(__file__)


def test_the_readme_names_every_library() -> None:
    """Of these extras somebody has to choose one."""
    folder = Path(__file__).parents[1]
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    extras = [extra for extra in project["optional-dependencies"] if extra.startswith("lib-")]
    assert extras
    assert all(f"`{extra}`" in (folder / "README.md").read_text() for extra in extras)


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


@pytest.mark.parametrize("options", [{"fuel": -1}, {"smallest": 0}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        NvfuserOptions(**options)

"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from thunder_core.plugins.host import host, reset_host
from thunder_core.plugins.states import PluginRecord, PluginState
from thunder_plugin_apex.executor import from_options
from thunder_plugin_apex.library import BUILD, FLAGS
from thunder_plugin_apex.options import ApexOptions
from thunder_testing import package_suite
from thunder_testing.distributions import write_metadata

test_package = package_suite(__file__)


def test_the_command_in_the_readme() -> None:
    """The one that errors name."""
    command = BUILD.format(" ".join(FLAGS.values())).partition(": ")[2]
    assert f"\n{command}\n" in (Path(__file__).parents[1] / "README.md").read_text()


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
    """The status from metadata alone; a fake Apex earlier on the path hides an installed one."""
    if version is None and _installed("apex"):
        pytest.skip("Apex is installed")
    if version is not None:
        write_metadata(tmp_path, "apex", version=version)
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

"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from thunder_core.plugins.host import host, reset_host
from thunder_core.plugins.states import PluginRecord, PluginState
from thunder_plugin_cudnn import library
from thunder_plugin_cudnn.executor import from_options
from thunder_plugin_cudnn.options import CudnnOptions
from thunder_testing import package_suite
from thunder_testing.distributions import write_metadata

LIBRARY = "nvidia-cudnn-frontend"
test_package = package_suite(__file__)


@pytest.mark.parametrize(
    ("version", "state", "why"),
    [
        (None, PluginState.LIBRARY_MISSING, f"it needs {LIBRARY}, which is not installed"),
        ("1.10.0", PluginState.VERSION_CONFLICT, f"it needs {LIBRARY}<2,>=1.20, and {LIBRARY} 1.10.0 is installed"),
        ("1.32.0", PluginState.AVAILABLE, ""),
    ],
)
def test_which_library_is_installed(
    version: str | None, state: PluginState, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status from metadata alone; a fake library earlier on the path hides an installed one."""
    if version is None and any(found.metadata["Name"] == LIBRARY for found in importlib.metadata.distributions()):
        pytest.skip("the library is installed")
    if version is not None:
        write_metadata(tmp_path, LIBRARY, version=version)
        monkeypatch.syspath_prepend(str(tmp_path))
    reset_host()
    try:
        found = _record()
    finally:
        reset_host()
    assert (found.state, found.why) == (state, why)


def _record() -> PluginRecord:
    return next(record for record in host().records if record.name == "cudnn")


def test_the_doctor_compares_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert library.check().ok == (not torch.cuda.is_available() or torch.backends.cudnn.version() == 91900)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for version, ok in ((91900, True), (91800, False)):
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda version=version: version)
        assert library.check().ok is ok


def test_equal_options_are_one_executor() -> None:
    assert from_options(CudnnOptions()) is from_options(CudnnOptions())
    assert from_options(CudnnOptions()) is not from_options(CudnnOptions(dropout=True))


def test_operations_are_chosen() -> None:
    names = {claim.symbol.__name__ for claim in from_options(CudnnOptions()).claims}  # type: ignore[union-attr]
    assert names == {"scaled_dot_product_attention"}
    chosen = from_options(CudnnOptions(operations=("rms_norm", "layer_norm")))
    assert {claim.symbol.__name__ for claim in chosen.claims} == {"rms_norm", "layer_norm"}  # type: ignore[union-attr]


@pytest.mark.parametrize("options", [{"operations": ["sdp"]}, {"operations": []}])
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        CudnnOptions(**options)

"""The package as a plugin. ``UPDATE_DOCUMENTS=1`` writes the table of options in the README anew."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from thunder_core.testing import package_suite
from thunder_plugin_cublas import library
from thunder_plugin_cublas.executor import from_options
from thunder_plugin_cublas.options import CublasOptions

test_package = package_suite(__file__)


def test_the_doctor_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    library.missing.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(torch.version, "cuda", None)
        found = library.check()
    library.missing.cache_clear()
    assert found.ok
    assert found.text == "this PyTorch is built without CUDA; the executor declines"


def test_the_doctor_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise OSError("libcublasLt.so.99: cannot open shared object file")

    library.missing.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(torch.version, "cuda", "99.0")
        patched.setattr(library, "library", absent)
        found = library.check()
    library.missing.cache_clear()
    assert not found.ok
    assert found.text == "cuBLASLt does not load: libcublasLt.so.99: cannot open shared object file"


def test_equal_options_are_one_executor() -> None:
    assert from_options(CublasOptions()) is from_options(CublasOptions())
    assert from_options(CublasOptions()) is not from_options(CublasOptions(candidates=1))


@pytest.mark.parametrize("options", [{"candidates": 0}, {"least_operations": -1}])
def test_wrong_options(options: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        CublasOptions(**options)

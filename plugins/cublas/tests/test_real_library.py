"""What the real library makes of descriptions. It needs PyTorch's CUDA libraries, and no GPU."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import pytest
import torch

from thunder_plugin_cublas import library, product

REASON = library.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def asked(function: str, described: Any, name: int, value: Any) -> Any:
    found, written = value(), c_size_t()
    size = c_size_t(ctypes.sizeof(found))
    assert getattr(library.library()._functions, function)(described, name, byref(found), size, byref(written)) == 0
    assert written.value == size.value
    return found.value


def test_descriptions() -> None:
    """A product of 64 x 32 by 32 x 48, whose right factor is stored by columns, with a bias."""
    a, b = torch.empty(64, 32, dtype=torch.bfloat16), torch.empty(48, 32, dtype=torch.bfloat16).t()
    bias, result = torch.empty(48, dtype=torch.bfloat16), torch.empty(64, 48, dtype=torch.bfloat16)
    described = library.library().describe(product.product_of(a, b, None, bias, result))
    operation = [
        asked("cublasLtMatmulDescGetAttribute", described.operation, name, value)
        for name, value in ((0, c_int), (1, c_int), (3, c_int), (4, c_int), (7, c_int), (8, c_void_p))
    ]
    assert operation == [68, 0, 1, 0, 4, None]  # sums and factors in float32, A transposed, B not, with a bias
    layouts = [
        [
            asked("cublasLtMatrixLayoutGetAttribute", layout, name, value)
            for name, value in ((0, c_int), (2, c_uint64), (3, c_uint64), (4, c_int64))
        ]
        for layout in (described.a, described.b, described.c, described.d)
    ]
    assert layouts == [[14, 32, 48, 32], [14, 32, 64, 32], [14, 48, 64, 48], [14, 48, 64, 48]]


def test_the_library_is_named_by_its_version() -> None:
    found = library.check()
    assert found.ok
    assert str(library.library().version) in found.text

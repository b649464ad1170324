"""The conformance suite with the fake library, with wide tolerances: eight bits are not what it compares with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fake_transformer_engine import REAL
from te_layers import executor

from thunder_plugin_te import operations
from thunder_testing import executor_suite

Sample = tuple[tuple[Any, ...], dict[str, Any]]
pytestmark = pytest.mark.skipif(REAL, reason="Transformer Engine is installed: test_cuda.py has the tests with it")


def tensors(device: str, dtype: torch.dtype, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]


def linears(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """With a bias and without, of several dimensions; and one that is declined."""
    if not dtype.is_floating_point:
        return
    yield tuple(tensors(device, dtype, (16, 32), (48, 32))), {}
    yield tuple(tensors(device, dtype, (2, 16, 32), (48, 32), (48,))), {}
    yield tuple(tensors(device, dtype, (3, 32), (48, 32))), {}


def quantized(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """With columns and without."""
    if dtype is torch.bfloat16:
        for columns in (True, False):
            yield (*tensors(device, dtype, (2, 16, 32)), "tensor", "e4m3", columns), {}


def products(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Of quantized tensors."""
    if dtype is torch.bfloat16:
        x, w = tensors(device, dtype, (2, 16, 32), (48, 32))
        parts = [operations.quantize(one, "tensor", "e4m3", True) for one in (x, w)]
        yield (x, w, None, *parts, "tensor,tensor,tensor,e5m2,fast,split"), {}


test_conformance = pytest.mark.battery(
    executor_suite(
        executor(),
        dtypes=[torch.bfloat16],
        samples={F.linear: linears, operations.quantize: quantized, operations.linear: products},
        tolerances={torch.bfloat16: (0.1, 4.0), torch.uint8: (0.0, 0.0)},
    )
)

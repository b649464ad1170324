"""The conformance suite, with calls that kernels take and calls that they decline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from thunder_testing import executor_suite

Sample = tuple[tuple[Any, ...], dict[str, Any]]


def samples(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Plain, causal, masked, grouped, scaled, from another layout; and of three dimensions, which no kernel takes."""
    if not dtype.is_floating_point:
        return

    def tensor(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=dtype, device=device)

    query, key, value = tensor(2, 4, 5, 8), tensor(2, 4, 6, 8), tensor(2, 4, 6, 8)
    yield (query, key, value), {}
    yield (query, query * 2, query + 1), {"is_causal": True}
    yield (query, key, value), {"attn_mask": torch.rand(5, 6, device=device) > 0.3, "scale": 0.5}
    yield (query, key, value), {"attn_mask": tensor(2, 1, 5, 6)}
    yield (query, tensor(2, 2, 6, 8), tensor(2, 2, 6, 8)), {"enable_gqa": True}
    yield tuple(tensor(2, 5, 4, 8).transpose(1, 2) for _ in range(3)), {"is_causal": True}
    yield (tensor(2, 5, 8), tensor(2, 5, 8), tensor(2, 5, 8)), {}


DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)

test_conformance = pytest.mark.battery(
    executor_suite("sdpa", devices=DEVICES, samples={F.scaled_dot_product_attention: samples})
)

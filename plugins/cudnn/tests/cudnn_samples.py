"""Calls for the conformance suite: that cuDNN takes, and that it declines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F

import thunder_plugin_composites as composites

OPERATIONS = ("sdpa", "layer_norm", "rms_norm")
"""All that the option knows."""
Sample = tuple[tuple[Any, ...], dict[str, Any]]


def attention(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    """Plain, causal, masked, grouped, scaled, from another layout; and of three dimensions, which is declined."""
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


def composite(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    if dtype.is_floating_point:
        input, weight = torch.randn(2, 3, 8, dtype=dtype, device=device), torch.randn(8, dtype=dtype, device=device)
        yield (input, weight, 1e-5), {}
        yield (input, weight, 1e-5), {"unit_offset": True}
        yield (input, weight, 1e-5), {"rounded": True}


def rms_norms(device: str, dtype: torch.dtype) -> Iterator[Sample]:
    if dtype.is_floating_point:
        input, weight = torch.randn(2, 3, 8, dtype=dtype, device=device), torch.randn(8, dtype=dtype, device=device)
        yield (input, (8,), weight, 1e-5), {}
        yield (input, (3, 8)), {}
        yield (input.transpose(0, 1), (8,), weight), {}


SAMPLES = {F.scaled_dot_product_attention: attention, composites.rms_norm: composite, F.rms_norm: rms_norms}

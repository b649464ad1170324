"""Calls of PyTorch's checks and kernels on fake tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.size import Size, from_fake
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake
from thunder_plugin_sdpa.call import Call


def fakes_of(call: Call, mode: ObservingFakeMode | None = None) -> list[Any]:
    """Fake tensors for query, key, value and the mask, if present."""
    mode = mode or ObservingFakeMode()
    return [make_fake(mode, tensor) for tensor in call.tensors.values()]


@lru_cache(maxsize=1024)
def own_strides(run: Callable[..., torch.Tensor], call: Call) -> tuple[Size, ...]:
    """The strides of a kernel's result, cached by the call; pass `Call.anonymous`."""
    mode = ObservingFakeMode()
    query, key, value, *mask = fakes_of(call, mode)
    with torch.random.fork_rng(devices=[]), mode, modes_for_fakes(Context(grad_enabled=False, inference=False)):
        result = run(
            query, key, value, mask[0] if mask else None, call.dropout, call.causal, scale=call.scale, enable_gqa=True
        )
    strides: tuple[Size, ...] = from_fake(result.stride())
    return strides

"""Regions that were compiled in this process: equal ones are compiled once, whatever layer or program they are from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import torch

from thunder_core.executors.executor import FusionExecutor
from thunder_core.ir.trace import Trace
from thunder_core.passes.region_key import region_key

Compiled = Callable[..., Sequence[Any]]

_CACHE_SIZE: Final = 1024
_cache: OrderedDict[tuple[FusionExecutor, Hashable, Hashable], Compiled | str] = OrderedDict()
_lock = threading.Lock()


def _flags() -> Hashable:
    """PyTorch's settings that compiled code may depend on."""
    return (
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def compiled_once(executor: FusionExecutor, region: Trace) -> Compiled | str:
    """What `FusionExecutor.fuse` gave for an equal region, or gives for this one."""
    own = region_key(region)
    if own is None:
        return executor.fuse(region)
    key = (executor, own, _flags())
    with _lock:
        known = _cache.get(key)
        if known is not None:
            _cache.move_to_end(key)
            return known
    found = executor.fuse(region)
    with _lock:
        _cache[key] = found
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return found

"""Regions that were compiled in this process: equal ones are compiled once, whatever layer or program they are from."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from thunder_core.executors.executor import FusionExecutor
from thunder_core.ir.trace import Trace
from thunder_core.passes.region_key import region_key

Compiled = Callable[..., Sequence[Any]]

_CACHE_SIZE: Final = 1024
_cache: OrderedDict[tuple[FusionExecutor, Hashable], Compiled | str] = OrderedDict()
_lock = threading.Lock()


def compiled_once(executor: FusionExecutor, region: Trace) -> Compiled | str:
    """What `FusionExecutor.fuse` gave for an equal region, or gives for this one."""
    key = region_key(region)
    if key is None:
        return executor.fuse(region)
    with _lock:
        known = _cache.get((executor, key))
        if known is not None:
            _cache.move_to_end((executor, key))
            return known
    found = executor.fuse(region)
    with _lock:
        _cache[executor, key] = found
        while len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return found

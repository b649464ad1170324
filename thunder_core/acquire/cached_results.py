"""Functions of ``functools.lru_cache`` that the program calls with tensors, or that give tensors which it computes."""

from __future__ import annotations

import gc
from typing import Any

import torch

from thunder_core.acquire.module_calls import EagerCallNeeded
from thunder_core.acquire.traced_tensor import holds_traced_tensor
from thunder_core.guards.observer import Observer


def check(observer: Observer) -> None:
    """To be called when the program has run. Results that depend on no tensor are constants, which guards cover.

    Raises:
        EagerCallNeeded: a result was computed now, which the cache has to keep, or it is of the tensors of this call.
    """
    for function in observer.called_cached_functions():
        name = str(getattr(function, "__qualname__", function))
        if holds_traced_tensor(function):
            function.cache_clear()
            raise EagerCallNeeded(f"the functools.lru_cache of {name} keeps a tensor that the program computes")
        if any(_holds_tensor(key) for held in gc.get_referents(function) if type(held) is dict for key in held):
            raise EagerCallNeeded(f"{name}, which has a functools.lru_cache, is called with tensors")


def _holds_tensor(key: Any) -> bool:
    parts = key if isinstance(key, tuple | list) else (key,)
    return any(isinstance(part, torch.Tensor) for part in parts)

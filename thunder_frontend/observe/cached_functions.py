"""Results that functions of ``functools.lru_cache`` hold."""

from __future__ import annotations

import functools
import gc
from typing import Any, Final

from thunder_core.checks.cached_results import HeldResults

CachedFunction: Final = functools._lru_cache_wrapper


def results_of(function: Any) -> tuple[Any, ...]:
    """The results in the cache of a function, those used last at the end if the cache is bounded."""
    return tuple([result for _, result in _entries(function)])


def held_results(function: Any, most: int) -> HeldResults:
    """The ``most`` results in the cache of a function that were used last, to be compared at later calls."""
    return HeldResults(function, cache_of(function), [key for key, _ in _entries(function)[-most:]])


def cache_of(function: Any) -> dict[Any, Any]:
    """The dictionary of the cache of a function; a bounded cache has objects in it that hold the results."""
    held = gc.get_referents(function)
    return next((each for each in held if type(each) is dict and each is not vars(function)), {})


def _entries(function: Any) -> list[tuple[Any, Any]]:
    """The keys and results. The implementation in C tells them to the garbage collector only."""
    if function.cache_info().maxsize is None:
        return list(cache_of(function).items())
    held = gc.get_referents(function)
    ends = [index for index, each in enumerate(held) if isinstance(each, type) and each.__name__ == "_lru_list_elem"]
    # key, result, class; and again
    return [(held[index - 2], held[index - 1]) for index in ends[: function.cache_info().currsize]]

"""Results that functions of ``functools.lru_cache`` hold."""

from __future__ import annotations

import functools
import gc
from typing import Any, Final

from thunder_core.checks.plain import is_plain

CachedFunction: Final = functools._lru_cache_wrapper
_MOST_COMPARED: Final = 16
"""Results of one function that a guard compares."""


def results_of(function: Any) -> tuple[Any, ...]:
    """The results in the cache of a function; its implementation in C tells them to the garbage collector only."""
    held = gc.get_referents(function)
    if function.cache_info().maxsize is None:
        cache: dict[Any, Any] = next((each for each in held if type(each) is dict and each is not vars(function)), {})
        return tuple(cache.values())
    ends = [index for index, each in enumerate(held) if isinstance(each, type) and each.__name__ == "_lru_list_elem"]
    return tuple([held[index - 1] for index in ends[: function.cache_info().currsize]])  # key, result, class; and again


def cached_content(function: Any) -> tuple[int, tuple[Any, ...]]:
    """The number of misses, and the results if these are few."""
    info = function.cache_info()
    return info.misses, results_of(function) if info.currsize <= _MOST_COMPARED else ()


def lacks_results(function: Any, content: tuple[int, tuple[Any, ...]]) -> bool:
    """Whether a function lost results that it held: its cache was cleared, or was full."""
    misses, results = content
    if function.cache_info().misses < misses:
        return True
    held = set(map(_key, results_of(function))) if results else set()
    return not held.issuperset(map(_key, results))


def _key(result: Any) -> Any:
    """The value of plain data, of which the guard may have a copy; the identity of other objects."""
    return repr(result) if is_plain(result) else id(result)

"""Results that functions of ``functools.lru_cache`` hold."""

from __future__ import annotations

import functools
import gc
from typing import Any, Final

CachedFunction: Final = functools._lru_cache_wrapper


def results_of(function: Any) -> tuple[Any, ...]:
    """The results in the cache of a function, those used last at the end if the cache is bounded.

    The implementation in C tells them to the garbage collector only.
    """
    held = gc.get_referents(function)
    if function.cache_info().maxsize is None:
        cache: dict[Any, Any] = next((each for each in held if type(each) is dict and each is not vars(function)), {})
        return tuple(cache.values())
    ends = [index for index, each in enumerate(held) if isinstance(each, type) and each.__name__ == "_lru_list_elem"]
    return tuple([held[index - 1] for index in ends[: function.cache_info().currsize]])  # key, result, class; and again

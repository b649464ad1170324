"""The results that a function of ``functools.lru_cache`` holds, compared at later calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from thunder_core.checks.plain import is_plain

_NOTHING = object()


class HeldResults:
    """What the cache of a function held when a program was recorded.

    Only keys that can be looked up without code of the user are compared.
    """

    __slots__ = ("_cache", "_entries", "_misses")

    def __init__(self, function: Any, cache: Mapping[Any, Any], keys: Iterable[Any]) -> None:
        """Remember the results of ``keys``.

        Args:
            function: the function with the cache.
            cache: its dictionary: for each key the result, or the object that holds it, which each computation creates.
            keys: those whose results are compared.
        """
        self._misses: int = function.cache_info().misses
        self._cache = cache
        self._entries = [(key, cache[key]) for key in keys if key in cache and _is_hashed_in_c(key)]

    def problem(self, function: Any) -> str:
        """What has changed; empty if nothing has. Keys that a bounded cache has lost are no change."""
        information = function.cache_info()
        if information.misses < self._misses:
            return "was cleared"
        if information.maxsize is None:
            same = all(self._cache.get(key, _NOTHING) is result for key, result in self._entries)
        else:
            same = all(self._cache.get(key, result) is result for key, result in self._entries)
        return "" if same else "was cleared, or holds other results"


def _is_hashed_in_c(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_hashed_in_c, key))
    return is_plain(key) or isinstance(key, type) or type(key).__hash__ is object.__hash__

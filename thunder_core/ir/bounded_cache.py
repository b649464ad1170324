"""A thread-safe least-recently-used cache."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, TypeVar

from thunder_core.forking import renew_in_child

Value = TypeVar("Value")


class _Absent:
    """The type of the sentinel for a missing result; None is a valid result."""


_ABSENT: Final = _Absent()


class BoundedCache(Generic[Value]):
    """Results by key; beyond ``size`` results the least recently used one is evicted.

    Ops with equal symbols and metadata have equal keys (`call_key`), so that all layers of a model use the results of
    the first. The result for a key of None is computed and not cached.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._results: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def get(self, key: Hashable | None, compute: Callable[[], Value]) -> Value:
        """The cached result for ``key``, or else that of ``compute``, which is cached. Exceptions are not cached.

        Threads that compute a result at the same time all return the first one stored.
        """
        if key is None:
            return compute()
        cached = self._lookup(key)
        return self.add(key, compute()) if isinstance(cached, _Absent) else cached

    def lookup(self, keys: Iterable[Hashable]) -> dict[Hashable, Value]:
        """The cached results among those of ``keys``, by key."""
        cached = [(key, self._lookup(key)) for key in keys]
        return {key: result for key, result in cached if not isinstance(result, _Absent)}

    def add(self, key: Hashable, result: Value) -> Value:
        """Store ``result`` unless ``key`` already has a result; return the stored one."""
        with self._lock:
            result = self._results.setdefault(key, result)
            self._results.move_to_end(key)
            while len(self._results) > self._size:
                self._results.popitem(last=False)
        return result

    def clear(self) -> None:
        """Remove all results."""
        with self._lock:
            self._results.clear()

    def results(self) -> list[Value]:
        """All results, the least recently used first."""
        with self._lock:
            return list(self._results.values())

    def _lookup(self, key: Hashable) -> Value | _Absent:
        with self._lock:
            result = self._results.get(key, _ABSENT)
            if result is not _ABSENT:
                self._results.move_to_end(key)
        return result

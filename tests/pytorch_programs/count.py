"""Numbers that a test asks of Dynamo, such as how often it compiled. Nothing here knows them: every answer will do."""

from __future__ import annotations

import collections
from typing import Any


class Count(int):
    """Equals and exceeds everything, as does all that is computed from it."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return True

    __lt__ = __le__ = __gt__ = __ge__ = __eq__
    __hash__ = int.__hash__

    def __add__(self, other: Any) -> Count:
        return self

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __add__


class _OfOneKind(collections.Counter[Any]):
    def __missing__(self, key: Any) -> Count:
        return Count()


class Counts(collections.defaultdict[Any, Any]):
    """In place of ``torch._dynamo.utils.counters``."""

    def __init__(self) -> None:
        super().__init__(_OfOneKind)


class Counter:
    """A backend that is never called.

    In place of ``CompileCounter``, ``CompileCounterWithBackend`` and backends that record graphs.
    """

    def __init__(self, *arguments: Any) -> None:
        self.graphs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("frame_count", "op_count"):
            return Count()
        raise AttributeError(name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("frame_count", "op_count"):
            super().__setattr__(name, value)

    def __call__(self, graph: Any, inputs: Any) -> Any:
        raise AssertionError("a backend of Dynamo is called, though nothing is compiled by Dynamo")

    def clear(self) -> None:
        self.graphs.clear()

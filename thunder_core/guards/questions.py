"""Questions whose answers tell cache entries apart: what a guard expects, as something that can be looked up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.guards.global_state import READERS
from thunder_core.guards.guard import Guard, PlainGuard, TypeGuard
from thunder_core.guards.identity_guards import CodeGuard, IdentityGuard
from thunder_core.guards.plain import is_plain
from thunder_core.guards.prologue import CallShape, Prologue
from thunder_core.guards.source import Names, Source
from thunder_core.guards.structure_guards import (
    KeysGuard,
    LengthGuard,
)
from thunder_core.guards.tensor_guard import TensorGuard


@dataclass(frozen=True, slots=True)
class Question:
    """Something cheap to ask about a call.

    Attributes:
        source: what is asked about; None for the call itself and for PyTorch's modes.
        aspect: what is asked of it.
    """

    source: Source | None
    aspect: str

    def expression(self, names: Names) -> str:
        """Python for the answer."""
        if self.source is None:
            if self.aspect == "call":
                return "len(args), tuple(kwargs)"
            return f"{names.constant(READERS[self.aspect], self.aspect)}()"
        path = self.source.expression(names)
        return _ASPECTS[self.aspect].format(path)


_ASPECTS = {
    "value": "{0}",
    "type": "type({0})",
    "shape": "{0}.shape",
    "dtype": "{0}.dtype",
    "device": "{0}.device",
    "requires_grad": "{0}.requires_grad",
    "stride": "{0}.stride()",
    "length": "len({0})",
    "keys": "tuple({0})",
    "code": "id({0}.__code__)",
    "identity": "id({0})",
}


def answers(prologue: Prologue) -> Iterator[tuple[Question, Any]]:
    """What an entry expects, the cheapest questions first."""
    shape: CallShape = prologue.shape
    yield Question(None, "call"), (shape.positional, shape.keywords)
    for guard in prologue.guards:
        if guard.source.parent is None:
            yield from _expected(guard)
    for name, value in prologue.state.values.items():
        yield Question(None, name), value
    for guard in prologue.guards:
        if guard.source.parent is not None:
            yield from _expected(guard)


def _expected(guard: Guard) -> Iterator[tuple[Question, Any]]:
    source = guard.source
    if isinstance(guard, TensorGuard):
        yield Question(source, "type"), guard.expected
        for aspect in ("shape", "dtype", "device", "requires_grad"):
            yield Question(source, aspect), getattr(guard, aspect)
        if guard.layout is torch.strided and guard.needs_exact_stride:
            yield Question(source, "stride"), guard.stride
    elif isinstance(guard, PlainGuard):
        yield Question(source, "type"), type(guard.expected)
        if _is_hashable(guard.expected):
            yield Question(source, "value"), guard.expected
    elif isinstance(guard, TypeGuard):
        yield Question(source, "type"), guard.expected
    elif isinstance(guard, LengthGuard) and not guard.stored:
        yield Question(source, "length"), guard.expected
    elif isinstance(guard, KeysGuard) and not guard.dictionary and not guard.stored:
        if _is_hashable(guard.expected):
            yield Question(source, "keys"), guard.expected
    elif isinstance(guard, CodeGuard):
        yield Question(source, "code"), id(guard.expected)
    elif isinstance(guard, IdentityGuard):
        yield Question(source, "identity"), id(guard.expected)


def _is_hashable(value: Any) -> bool:
    """True for values that a dictionary finds again: hashable, and no NaN (unequal to itself) inside."""
    try:
        hash(value)
    except TypeError:
        return False
    return is_plain(value) and (not isinstance(value, float | complex | tuple | frozenset) or "nan" not in repr(value))

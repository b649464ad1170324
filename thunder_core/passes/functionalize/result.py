"""What functionalization hands to the runtime and to the passes after it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class FromInput:
    """The very object that the computation's input ``index`` is."""

    index: int


@dataclass(frozen=True, slots=True)
class FromComputation:
    """Item ``index`` of what the computation returns."""

    index: int


@dataclass(frozen=True, slots=True)
class FromEpilogue:
    """Item ``index`` of what the epilogue returns."""

    index: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A plain Python value."""

    value: Any


ResultSource = FromInput | FromComputation | FromEpilogue | Literal


@dataclass(frozen=True, slots=True)
class Mutation:
    """How one in-place call was made functional, for `Reinplace`.

    Attributes:
        original: the in-place call on functional values; its outputs are acquired names, of which those in ``objects``
            are the written argument itself.
        functional: what the first of these lines calls: the twin of the in-place symbol with the same arguments, or
            `operations.functional_call`, whose last two arguments are those of the in-place call.
        lines: first output names of the functional lines that do its work.
        written: for each written argument: the value before, the value after, the value of the whole memory before, and
            after.
        objects: output name of ``original`` → position in ``written`` of the argument that it is.
    """

    original: BoundSymbol
    functional: Symbol
    lines: tuple[str, ...]
    written: tuple[tuple[str, str, str, str], ...]
    objects: dict[str, int]


@dataclass(frozen=True, slots=True)
class Functionalized:
    """A program without mutation, and what remains to be done after it.

    To run it: ``values = computation(*inputs)``; then, if there is an epilogue, call it with ``epilogue_arguments``
    (each an input of the computation or one of ``values``): it writes the program's inputs and returns what must be a
    view of a written input. ``results`` then says, for each item of the acquired trace's output, what it is. Items that
    were one object in the program have equal sources.

    Attributes:
        computation: its output is a flat tuple of distinct proxies.
        epilogue: its inputs are called like the computation's inputs and outputs; its output is a flat tuple.
        mutations: how each in-place call was done.
        replays: name of a view that was taken again → name of the same view before the memory changed.
    """

    computation: Trace
    epilogue: Trace | None
    epilogue_arguments: tuple[FromInput | FromComputation, ...]
    results: tuple[ResultSource, ...]
    mutations: tuple[Mutation, ...] = ()
    replays: dict[str, str] = field(default_factory=dict)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The computation, and the epilogue if there is one."""
        return (self.computation,) if self.epilogue is None else (self.computation, self.epilogue)

    @property
    def donated(self) -> frozenset[str]:
        """Names of values whose memory may be written later; other passes must not merge them."""
        return frozenset(name for mutation in self.mutations for item in mutation.written for name in item)

    @property
    def partial_writes(self) -> frozenset[str]:
        """Names of values that have a part of some memory anew. Made in place they cost that part, else all of it."""
        return frozenset(
            name
            for mutation in self.mutations
            if Tag.INDEXING in mutation.functional.tags or any(old != whole for old, _, whole, _ in mutation.written)
            for name in mutation.lines
        )

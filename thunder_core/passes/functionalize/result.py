"""The result of functionalization, for the runtime and for later passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class FromInput:
    """The object passed as the computation's input ``index``."""

    index: int


@dataclass(frozen=True, slots=True)
class FromComputation:
    """Item ``index`` of the computation's output."""

    index: int


@dataclass(frozen=True, slots=True)
class FromEpilogue:
    """Item ``index`` of the epilogue's output."""

    index: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A plain Python value."""

    value: Any


ResultSource = FromInput | FromComputation | FromEpilogue | Literal


class WrittenArgument(NamedTuple):
    """Names of the values of an argument that an in-place op writes.

    Attributes:
        before, after: the argument before and after the write.
        whole_before, whole_after: the whole block that contains it, before and after the write.
    """

    before: str
    after: str
    whole_before: str
    whole_after: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """The functional form of one in-place op, for `Reinplace`.

    Attributes:
        original: the in-place op on functional values. Its outputs have acquired names; those in ``objects`` are
            written arguments themselves.
        functional: the symbol of the first op in ``ops``: the functional twin of the in-place symbol with the same
            arguments, or `operations.functional_call`, whose last two arguments are those of the in-place op.
        ops: the first output name of each op of the functional form.
        written: the written arguments, in order.
        objects: from output names of ``original`` to the position in ``written`` of the argument that is returned.
    """

    original: BoundSymbol
    functional: Symbol
    ops: tuple[str, ...]
    written: tuple[WrittenArgument, ...]
    objects: dict[str, int]


@dataclass(frozen=True, slots=True)
class Functionalized:
    """A functional computation and an epilogue with the program's writes to inputs.

    To run it: ``values = computation(*inputs)``; then, if there is an epilogue, call it with ``epilogue_arguments``
    (each an input of the computation or one of ``values``): it writes the program's inputs and returns the results that
    must be views of written inputs. ``results`` is the source of each item of the acquired trace's output. Items that
    were the same object in the program have equal sources.

    Attributes:
        computation: its output is a flat tuple of distinct proxies.
        epilogue: its inputs have the names of the computation's inputs and outputs; its output is a flat tuple.
        mutations: the functional form of each in-place op.
        regenerated: from the name of a view that was taken again after a write to the name of the view before it.
    """

    computation: Trace
    epilogue: Trace | None
    epilogue_arguments: tuple[FromInput | FromComputation, ...]
    results: tuple[ResultSource, ...]
    mutations: tuple[Mutation, ...] = ()
    regenerated: dict[str, str] = field(default_factory=dict)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The computation, and the epilogue if there is one."""
        return (self.computation,) if self.epilogue is None else (self.computation, self.epilogue)

    @property
    def donated(self) -> frozenset[str]:
        """Names of values whose storage may be written later; other passes must not merge them."""
        return frozenset(name for mutation in self.mutations for item in mutation.written for name in item)

    @property
    def unfused(self) -> frozenset[str]:
        """Names of values that no region should compute, because it would copy what the op writes in place: those of
        `partial_writes`, and of calls that write several tensors, as optimizers do.
        """
        several = [mutation for mutation in self.mutations if len(mutation.written) > 2]
        return self.partial_writes.union(name for mutation in several for name in mutation.ops)

    @property
    def partial_writes(self) -> frozenset[str]:
        """Names of values that differ from another in a part of its elements: in place, only that part is written."""
        return frozenset(
            name
            for mutation in self.mutations
            if Tag.INDEXING in mutation.functional.tags
            or any(item.before != item.whole_before for item in mutation.written)
            for name in mutation.ops
        )

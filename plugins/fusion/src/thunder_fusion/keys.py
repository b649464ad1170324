"""Keys of programs and of operations, which are equal for the same computation with other names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.keys import CanonicalNames, hashable, value_key
from thunder_core.ir.trace import Trace


def trace_key(trace: Trace) -> Hashable | None:
    """A key that is equal for programs that compute the same in the same way, independently of names of values.

    It contains everything on which compiled code may depend: symbols, dataflow, literals with their types, for each
    tensor the shape, strides, offset, dtype and device, and which tensors share storage. None for a program with a call
    that equals no other.
    """
    names = CanonicalNames()
    return hashable(
        lambda: (
            trace.context,
            value_key(trace.inputs, names),
            tuple([names.op(bound) for bound in trace.symbols]),
            value_key(trace.output, names),
        )
    )


def ops_key(ops: Sequence[BoundSymbol]) -> Hashable | None:
    """Like `trace_key`, for calls without their outputs to others."""
    names = CanonicalNames()
    return hashable(lambda: tuple([names.op(bound) for bound in ops]))

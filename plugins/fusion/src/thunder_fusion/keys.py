"""Keys of programs and of lines: equal where the same computation is written with other names."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.keys import CanonicalNames, hashable, value_key
from thunder_core.ir.trace import Trace


def trace_key(trace: Trace) -> Hashable | None:
    """A key that is equal for programs that compute the same in the same way, whatever the names of their values.

    Everything that compiled code may depend on is in it: symbols, how values flow, literals with their types, of each
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
    """Like `trace_key`, of calls alone: whatever others read of them."""
    names = CanonicalNames()
    return hashable(lambda: tuple([names.op(bound) for bound in ops]))

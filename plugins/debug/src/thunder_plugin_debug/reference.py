"""The reference of an operation of an executor, in PyTorch's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.delete_last_use import with_deletions
from thunder_plugin_debug.forward_arguments import WithArguments
from thunder_plugin_debug.line_call import innermost

_WITH_FUNCTIONS = frozenset({Tag.HOOK, Tag.HIGHER_ORDER, Tag.AUTOGRAD})


def why_not_compared(bound: BoundSymbol) -> str | None:
    """The reason why this operation of an executor cannot be compared; None if it can."""
    symbol, target = bound.symbol, innermost(bound.symbol.target)
    if bound.effects.mutates or bound.effects.visible:
        return "it has effects, which must not be repeated"
    if symbol.tags & _WITH_FUNCTIONS:
        return "it calls functions of the program, or autograd"
    if symbol.reference is None and not is_region(bound):
        return "it has no reference"
    if Tag.BACKWARD in symbol.tags:
        return target.why_not if isinstance(target, WithArguments) else "the arguments of its forward are not available"
    return None


def reference_of(bound: BoundSymbol, trace: Trace) -> Callable[..., Any]:
    """A function of the operation's arguments that returns its result; for the forward of a pair the outputs only."""
    if bound.symbol.reference is not None:
        return bound.symbol.reference.target
    return compile_trace(with_deletions(program_of_region(bound, trace)), title="reference of a region")


def is_region(bound: BoundSymbol) -> bool:
    """Whether the operation is a fused region."""
    return bound.symbol.executor is not None and bound.symbol.reference is None and bound.parts != ()


def program_of_region(region: BoundSymbol, trace: Trace) -> Trace:
    """The operations of a region as a program with the region's inputs and outputs."""
    context = region.context or trace.context
    return Trace("region", region.args, region.parts, region.output, Stage.EXECUTABLE, "fusion", context)

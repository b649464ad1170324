"""Apply passes to the bodies of checkpoint regions, as to the program around them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

from thunder_core.acquire.checkpoints import CHECKPOINT
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.functionalize import FromComputation, functional_form


@dataclass(frozen=True)
class FunctionalBodies(Pass[Trace]):
    """Functionalizes the bodies of checkpoint regions, so that `in_checkpoints` applies to them.

    A body stays unchanged if it writes to tensors from outside or returns one of its inputs, or if its region has a
    policy (``context_fn``), which remains a call.
    """

    name: ClassVar[str] = "FunctionalBodies"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return _with_functional_bodies(trace)


def _with_functional_bodies(trace: Trace) -> Trace:
    def functional(op: BoundSymbol) -> Trace:
        body = functional_body(op)
        return op.args[0] if body is None else _with_functional_bodies(body)

    return _with_bodies(trace, functional)


def functional_body(op: BoundSymbol) -> Trace | None:
    """The functionalized body of a checkpoint region, with the same inputs and outputs; None if there is none."""
    body: Trace = op.args[0]
    if "context_fn" in op.kwargs:
        return None
    if body.stage is Stage.FUNCTIONAL:
        return body
    functional = functional_form(body)
    outputs = [source.index for source in functional.results if isinstance(source, FromComputation)]
    if functional.epilogue is not None or len(set(outputs)) < len(body.output):
        return None
    computation = functional.computation
    return replace(computation, output=tuple([computation.output[index] for index in outputs]))


def in_checkpoints(trace: Trace, change: Callable[[Trace], Trace]) -> Trace:
    """The trace with ``change`` applied to the functional bodies of its checkpoint regions; itself if none changes."""
    return _with_bodies(trace, lambda op: change(op.args[0]) if op.args[0].stage is Stage.FUNCTIONAL else op.args[0])


def _with_bodies(trace: Trace, changed_body: Callable[[BoundSymbol], Trace]) -> Trace:
    def changed(op: BoundSymbol) -> BoundSymbol:
        if op.symbol is not CHECKPOINT:
            return op
        body, *free = op.args
        new = changed_body(op)
        return op if new is body else replace(op, args=(new, *free))

    ops = [changed(op) for op in trace.symbols]
    same = all(new is old for new, old in zip(ops, trace.symbols, strict=True))
    return trace if same else trace.with_symbols(ops, trace.provenance)

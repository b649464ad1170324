"""The programs of checkpoint regions, which passes change as they change the program around them."""

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
    """Makes the bodies of checkpoint regions functional, so that `in_checkpoints` reaches them.

    A body that writes to tensors from outside, or that returns what it was given, stays as it is; so does that of a
    region with a policy (``context_fn``), which remains a call.
    """

    name: ClassVar[str] = "FunctionalBodies"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return _with_functional_bodies(trace)


def _with_functional_bodies(trace: Trace) -> Trace:
    def functional(line: BoundSymbol) -> Trace:
        body = functional_body(line)
        return line.args[0] if body is None else _with_functional_bodies(body)

    return _with_bodies(trace, functional)


def functional_body(line: BoundSymbol) -> Trace | None:
    """The body of a checkpoint region without in-place calls: the same inputs and outputs. None if it cannot be so."""
    body: Trace = line.args[0]
    if "context_fn" in line.kwargs:
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
    """The trace with ``change`` done to the functional bodies of its checkpoint regions; itself if nothing changes."""
    return _with_bodies(
        trace, lambda line: change(line.args[0]) if line.args[0].stage is Stage.FUNCTIONAL else line.args[0]
    )


def _with_bodies(trace: Trace, changed_body: Callable[[BoundSymbol], Trace]) -> Trace:
    def changed(line: BoundSymbol) -> BoundSymbol:
        if line.symbol is not CHECKPOINT:
            return line
        body, *free = line.args
        made = changed_body(line)
        return line if made is body else replace(line, args=(made, *free))

    lines = [changed(line) for line in trace.symbols]
    same = all(new is old for new, old in zip(lines, trace.symbols, strict=True))
    return trace if same else trace.with_symbols(lines, trace.provenance)

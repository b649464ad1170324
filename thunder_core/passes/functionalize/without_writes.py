"""Functionalize the trace of a decomposed op."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.errors import LoweringError, ThunderError
from thunder_core.ir.trace import Trace
from thunder_core.passes.functionalize.functionalize import functional_form
from thunder_core.passes.functionalize.result import FromComputation, FromInput


def without_writes(trace: Trace) -> Trace:
    """The trace in functional form; its outputs have the same values.

    Raises:
        LoweringError: it writes to its inputs, or in a way that cannot be functionalized.
    """
    if not any(bound.effects.mutates for bound in trace.symbols):
        return trace
    try:
        functional = functional_form(trace)
    except ThunderError as error:
        raise LoweringError(str(error)) from error
    computation = functional.computation
    output: list[Any] = []
    for source in functional.results:
        if isinstance(source, FromComputation):
            output.append(computation.output[source.index])
        elif isinstance(source, FromInput):
            output.append(computation.inputs[source.index])
    if functional.epilogue is not None or len(output) < len(functional.results):
        raise LoweringError("it writes to its inputs")
    return replace(computation, output=tuple(output))

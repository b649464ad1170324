"""Find the operation of a fused region that makes a NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, TransformContext
from thunder_plugin_debug.finding import Finding
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, with_calls
from thunder_plugin_debug.nan_check import CheckedCall
from thunder_plugin_debug.non_finite import Kind
from thunder_plugin_debug.reference import program_of_region


def search_region(region: BoundSymbol, trace: Trace, finding: Finding, kind: Kind, args: tuple[Any, ...]) -> Finding:
    """``finding`` with the first operation of a region that makes such a value when PyTorch runs them one by one.

    Args:
        region: a line of ``trace``, which made what was found.
        kind: what it is.
        args: what it was called with.
    """
    found: list[Finding] = []

    def make(line: Line, bound: BoundSymbol) -> LineCall:
        return CheckedCall(line, bound, frozenset(), frozenset(), (kind,), found.append)

    context = TransformContext(Phase(finding.line.phase))
    program = with_calls(program_of_region(region, trace), context, "nan_finder", make)
    try:
        with torch.no_grad():
            compile_trace(program, title="region for the NaN finder")(*args)
    except Exception as error:  # noqa: BLE001 - what was found is told in any case
        return replace(finding, inside=f"PyTorch cannot say where: {type(error).__name__}: {error}")
    if not found:
        return replace(finding, inside="PyTorch makes none of the same arguments")
    first = found[0].line
    return replace(finding, inside=f"the first to make one there is {first.operation}", location=first.location)

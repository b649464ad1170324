"""Search for the operation of a fused region that produces a NaN."""

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
    """``finding`` with the first operation of a region that produces such a value when PyTorch runs them one by one.

    Args:
        region: an operation of ``trace``, which produced the finding.
        trace: the program.
        finding: the finding.
        kind: NaN or infinity.
        args: the positional arguments of the call.
    """
    findings: list[Finding] = []

    def make(line: Line, bound: BoundSymbol) -> LineCall:
        return CheckedCall(line, bound, frozenset(), frozenset(), (kind,), findings.append)

    context = TransformContext(Phase(finding.line.phase))
    program = with_calls(program_of_region(region, trace), context, "nan_finder", make)
    try:
        with torch.no_grad():
            compile_trace(program, title="region for the NaN finder")(*args)
    except Exception as error:  # noqa: BLE001 - the findings are reported in any case
        return replace(finding, inside=f"PyTorch cannot run the region: {type(error).__name__}: {error}")
    if not findings:
        return replace(finding, inside="PyTorch produces none from the same arguments")
    first = findings[0].line
    return replace(
        finding, inside=f"the first operation that produces one is {first.operation}", location=first.location
    )

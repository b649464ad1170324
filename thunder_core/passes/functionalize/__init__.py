"""Functionalization: rewrite a program with in-place ops to one whose ops only compute values."""

from thunder_core.passes.functionalize.functionalize import (
    Functionalize,
    LeaveAsRecorded,
    functional_form,
    without_writes,
)
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalized,
    Literal,
    Mutation,
    ResultSource,
)

__all__ = [
    "FromComputation",
    "FromEpilogue",
    "FromInput",
    "Functionalize",
    "Functionalized",
    "LeaveAsRecorded",
    "Literal",
    "Mutation",
    "ResultSource",
    "functional_form",
    "without_writes",
]

"""Functionalization: from a program that writes memory to one that only computes values."""

from thunder_core.passes.functionalize.functionalize import Functionalize, unchanged
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalized,
    Literal,
    Mutation,
    ResultSource,
)
from thunder_core.passes.functionalize.without_writes import without_writes

__all__ = [
    "FromComputation",
    "FromEpilogue",
    "FromInput",
    "Functionalize",
    "Functionalized",
    "Literal",
    "Mutation",
    "ResultSource",
    "unchanged",
    "without_writes",
]

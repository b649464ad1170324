"""The cases of all operators."""

from __future__ import annotations

from benchmarks.operators import attention, gated, linear, losses, normalization, pointwise, rotary, softmax
from benchmarks.operators.case import Case

CASES: tuple[Case, ...] = (
    *normalization.CASES,
    *losses.CASES,
    *rotary.CASES,
    *gated.CASES,
    *softmax.CASES,
    *attention.CASES,
    *linear.CASES,
    *pointwise.CASES,
)
OPERATORS = tuple(dict.fromkeys(case.operator for case in CASES))
"""The values of ``--operator``."""


def cases_of(operator: str) -> list[Case]:
    """The cases of an operator."""
    return [case for case in CASES if case.operator == operator]

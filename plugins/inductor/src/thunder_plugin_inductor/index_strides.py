"""How far an index of memory moves with a loop's variable: most indices are sums, where that is a coefficient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import sympy
from torch._inductor.codegen import cpp

_NAME = "stride_at_vec_range"


@contextmanager
def coefficients_as_strides() -> Iterator[None]:
    """Inside, Inductor's C++ backend reads strides off where it can, instead of having SymPy simplify differences.

    SymPy was a third of the time in which the regions of a small Llama became C++ (of 6 s, on one core).
    """
    original: Callable[..., Any] | None = getattr(cpp, _NAME, None)
    if original is None:  # another version of Inductor asks in another way
        yield
        return

    def stride(index: Any, variable: Any, *range_: Any) -> Any:
        known = _coefficient(index, variable)
        return original(index, variable, *range_) if known is None else known

    with mock.patch.object(cpp, _NAME, stride):
        yield


def _coefficient(index: Any, variable: Any) -> Any:
    """That of the variable in a sum of multiples of symbols; None for what is no such sum."""
    total = sympy.S.Zero
    for term in sympy.Add.make_args(index):
        factor, rest = term.as_coeff_Mul()
        if rest == variable and factor.is_Integer:
            total += factor
        elif not (rest.is_Symbol or rest is sympy.S.One):
            return None
    return total

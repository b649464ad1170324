"""Strides of memory indices with respect to loop variables: most indices are sums, whose strides are coefficients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import sympy

from thunder_core.private_names import is_missing
from thunder_plugin_inductor.pytorch_internals import FloorDiv, ModularIndexing, stride_at_vec_range


@contextmanager
def coefficients_as_strides() -> Iterator[None]:
    """A context in which Inductor's C++ backend uses coefficients as strides if possible, instead of SymPy's simplify.

    SymPy took a third of the time in which C++ was generated for a small Llama (of 6 s, on one core); its first
    simplification imports a system of physical units.
    """
    if is_missing(stride_at_vec_range):  # other versions of Inductor pass other arguments
        yield
        return
    original: Callable[..., Any] = stride_at_vec_range.value

    def stride(index: Any, variable: Any, vec_length: int | None = None) -> Any:
        known = coefficient(index, variable, vec_length)
        return original(index, variable, vec_length) if known is None else known

    with mock.patch.object(stride_at_vec_range.owner, stride_at_vec_range.name, stride):
        yield


def coefficient(index: Any, variable: Any, vec_length: int | None = None) -> Any:
    """The coefficient of a variable in a sum of multiples; None if the index has another form.

    Args:
        index: a SymPy expression.
        variable: a symbol in it, or not.
        vec_length: number of steps of the variable, from a multiple of it, for which quotients and remainders are
            evaluated: one that only changes between such ranges is constant.
    """
    total = sympy.S.Zero
    for term in sympy.Add.make_args(index):
        factor, rest = term.as_coeff_Mul()
        if rest.has(variable):
            stride = _of_factor(rest, variable, vec_length)
            if stride is None or not factor.is_Integer:
                return None
            total += factor * stride
    return total


def _of_factor(factor: Any, variable: Any, vec_length: int | None) -> int | None:
    if factor == variable:
        return 1
    if vec_length is None or not isinstance(factor, FloorDiv | ModularIndexing) or factor.args[0] != variable:
        return None
    if not all(size.is_Integer for size in factor.args[1:]):
        return None
    divisor, *modulus = map(int, factor.args[1:])
    if divisor % vec_length == 0:
        return 0
    return 1 if divisor == 1 and modulus and modulus[0] % vec_length == 0 else None

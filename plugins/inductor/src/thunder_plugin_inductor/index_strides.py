"""How far an index of memory moves with a loop's variable: most indices are sums, where that is a coefficient."""

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
    """Inside, Inductor's C++ backend reads strides off where it can, instead of having SymPy simplify differences.

    SymPy was a third of the time in which the regions of a small Llama became C++ (of 6 s, on one core); its first
    simplification imports a system of physical units.
    """
    if is_missing(stride_at_vec_range):  # another version of Inductor asks in another way
        yield
        return
    original: Callable[..., Any] = stride_at_vec_range.value

    def stride(index: Any, variable: Any, vec_length: int | None = None) -> Any:
        known = coefficient(index, variable, vec_length)
        return original(index, variable, vec_length) if known is None else known

    with mock.patch.object(stride_at_vec_range.owner, stride_at_vec_range.name, stride):
        yield


def coefficient(index: Any, variable: Any, vec_length: int | None = None) -> Any:
    """That of a variable in a sum of multiples; None where it cannot be read off.

    Args:
        index: a SymPy expression.
        variable: a symbol in it, or not.
        vec_length: quotients and remainders are taken for what they are within as many steps of the variable, beginning
            at a multiple of it: one that counts whole such ranges stays the same.
    """
    total = sympy.S.Zero
    for term in sympy.Add.make_args(index):
        factor, rest = term.as_coeff_Mul()
        if rest.has(variable):
            own = _of_factor(rest, variable, vec_length)
            if own is None or not factor.is_Integer:
                return None
            total += factor * own
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

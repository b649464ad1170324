"""Operators of `torch.library` that are functions of Python: their kernels, and the formulas of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from thunder_core.pytorch_internals import (
    custom_operators,
    derivative_of,
    kernel_of,
    kernels_by_device,
    python_kernel_keys,
    schema_of,
)
from thunder_core.symbols.schema import overloads_of


def python_kernels(func: Callable[..., Any]) -> tuple[Callable[..., Any], ...] | None:
    """The functions of Python that compute an operator; empty for one of C++.

    None if they are not known: PyTorch holds functions that `torch.library.Library.impl` gets in C++.
    """
    functions: list[Callable[..., Any]] = []
    for overload in overloads_of(func) or ():
        schema = schema_of(overload)
        defined = custom_operators.get(schema.name)
        if defined is not None:
            functions += [kernel_of(defined), *kernels_by_device(defined).values()]
            continue
        name = ".".join(filter(None, (schema.name.replace("::", "/"), schema.overload_name)))
        if _is_registered(name, len(python_kernel_keys)):
            return None
    return tuple(functions)


@cache
def _is_registered(name: str, count: int) -> bool:
    """Whether `torch.library.Library.impl` got a kernel for an operator; ``count`` is that of all such kernels."""
    return any(key.startswith(f"{name}/") and not key.endswith("/Meta") for key in python_kernel_keys)


def python_derivative(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of Python that computes the gradients of an operator; None if it has none."""
    for overload in overloads_of(func) or ():
        defined = custom_operators.get(schema_of(overload).name)
        if defined is not None and derivative_of(defined) is not None:
            function: Callable[..., Any] = derivative_of(defined)
            return function
    return None

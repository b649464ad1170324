"""Operators of `torch.library` that are functions of Python: their kernels, and the formulas of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from thunder_core.pytorch_internals import (
    custom_operators,
    derivative_of,
    kernel_of,
    kernels_by_device,
    python_kernel_keys,
    schema_of,
    setup_context_of,
)
from thunder_core.symbols.schema import COMMUNICATES, overloads_of

_OF_PYTORCH: Final = frozenset({"prims", "rngprims"})
"""Namespaces whose kernels and formulas are PyTorch's own functions of Python, which read no variables of programs."""


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
        own = schema.name.partition("::")[0] in COMMUNICATES | _OF_PYTORCH
        if not own and any(key != "Meta" for key in _registered_keys(schema)):
            return None
    return tuple(functions)


def _registered_keys(schema: Any) -> list[str]:
    """The dispatch keys for which `torch.library.Library.impl` has got functions for an operator."""
    name = ".".join(filter(None, (schema.name.replace("::", "/"), schema.overload_name))) + "/"
    return [key.removeprefix(name) for key in tuple(python_kernel_keys) if key.startswith(name)]


def python_derivative(func: Callable[..., Any]) -> Callable[..., Any] | None:
    """The function of Python that computes the gradients of an operator; None if it has none."""
    for overload in overloads_of(func) or ():
        defined = custom_operators.get(schema_of(overload).name)
        if defined is not None and derivative_of(defined) is not None:
            function: Callable[..., Any] = derivative_of(defined)
            return function
    return None


def python_formulas(func: Callable[..., Any]) -> tuple[Callable[..., Any], ...] | None:
    """The functions of Python that run for the gradients of an operator, in forward and in backward; empty if none do.

    None if they are not known: PyTorch holds in C++ those of an operator that `torch.library.define` defines.
    """
    functions: list[Callable[..., Any]] = []
    for overload in overloads_of(func) or ():
        schema = schema_of(overload)
        defined = custom_operators.get(schema.name)
        if defined is not None:
            functions += filter(None, (setup_context_of(defined), derivative_of(defined)))
        elif schema.name.partition("::")[0] not in _OF_PYTORCH and "Autograd" in _registered_keys(schema):
            return None
    return tuple(functions)

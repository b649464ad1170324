"""Operators of `torch.library` that are functions of Python: their kernels, and the formulas of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from thunder_core.pytorch_internals import (
    batching_rule_of,
    custom_operators,
    derivative_of,
    kernel_of,
    kernels_by_device,
    python_kernel_keys,
    schema_of,
    setup_context_of,
)
from thunder_core.symbols.schema import COMMUNICATES, overloads_of

_OF_AUTOGRAD: Final = ("Autograd", "CompositeImplicitAutograd")
"""The dispatch keys, and those that start with one, of functions that autograd differentiates or that replace it."""
_TRANSFORMED: Final = (*_OF_AUTOGRAD, "FuncTorch")
"""As `_OF_AUTOGRAD`, of functions that run under transformations of `torch.func`."""
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
        if _is_of_user(schema) and any(key != "Meta" for key in _registered_keys(schema)):
            return None
    return tuple(functions)


def _is_of_user(schema: Any) -> bool:
    return schema.name.partition("::")[0] not in COMMUNICATES | _OF_PYTORCH


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

    None if they are not known: PyTorch holds in C++ those of an operator that `torch.library.define` defines. A kernel
    for ``CompositeImplicitAutograd`` is one of these, since autograd differentiates what it calls.
    """
    functions: list[Callable[..., Any]] = []
    for overload in overloads_of(func) or ():
        schema = schema_of(overload)
        defined = custom_operators.get(schema.name)
        if defined is not None:
            functions += filter(None, (setup_context_of(defined), derivative_of(defined)))
        elif _is_of_user(schema) and any(key.startswith(_OF_AUTOGRAD) for key in _registered_keys(schema)):
            return None
    return tuple(functions)


def python_batching_rules(func: Callable[..., Any]) -> tuple[Callable[..., Any], ...] | None:
    """The functions of Python that run for an operator under transformations of `torch.func`, in place of its kernel.

    None if they are not known.
    """
    functions: list[Callable[..., Any]] = []
    for overload in overloads_of(func) or ():
        schema = schema_of(overload)
        defined = custom_operators.get(schema.name)
        if defined is not None:
            functions += filter(None, (batching_rule_of(defined),))
        elif _is_of_user(schema) and any(key.startswith(_TRANSFORMED) for key in _registered_keys(schema)):
            return None
    return tuple(functions)

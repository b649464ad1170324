"""Convert ATen operators to calls of public torch functions, which are also faster to call from Python."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import (
    OpOverload,
    VariableFunctions,
    aten_to_copy,
    aten_unsafe_view,
    neural_functions,
    schema_of,
)

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]

_aten = torch.ops.aten


def _to_copy(tensor: Any, **options: Any) -> Call | None:
    """A conversion of only the dtype, for which `torch.Tensor.to` copies."""
    plain = {"layout": torch.strided, "device": getattr(tensor, "device", None), "pin_memory": False}
    given = {
        name: value
        for name, value in options.items()
        if value is not None and value is not False and not (name in plain and plain[name] == value)
    }
    if set(given) == {"dtype"} and given["dtype"] is not getattr(tensor, "dtype", None):
        return torch.Tensor.to, (tensor, given["dtype"]), {}
    return None


def _reshape(tensor: Any, size: Any) -> Call:
    return torch.reshape, (tensor, tuple(size)), {}


def _expand(tensor: Any, size: Any, *, implicit: bool = False) -> Call:
    return torch.Tensor.expand, (tensor, tuple(size)), {}


# Operators with public equivalents of other signatures. A reshape has the result of a view, for any strides.
_SPECIAL: Final[dict[Any, Callable[..., Call | None]]] = {
    _aten.view.default: _reshape,
    aten_unsafe_view: _reshape,
    _aten.expand.default: _expand,
    aten_to_copy: _to_copy,
}


def torch_call(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """A torch function and arguments equivalent to the call of ``operator``.

    Falls back to the operator itself. PyTorch generates both from one schema, so the arguments are the same.
    """
    special = _SPECIAL.get(operator)
    if special is not None:
        return special(*args, **kwargs) or (operator, args, kwargs)
    function = torch_function(operator) if isinstance(operator, OpOverload) else None
    return (operator, args, kwargs) if function is None else (function, args, kwargs)


@cache
def torch_function(operator: OpOverload) -> Callable[..., Any] | None:
    """The function of ``torch``, or in-place method, that PyTorch generated for an ATen operator; None without one."""
    namespace, _, name = schema_of(operator).name.partition("::")
    if namespace != "aten" or any(map(_only_operators_take, schema_of(operator).arguments)):
        return None
    function = getattr(torch, name, None)
    if isinstance(function, BuiltinFunctionType) and getattr(VariableFunctions, name, None) is function:
        return function
    if name.endswith("_") and not name.startswith("_"):
        method: Callable[..., Any] | None = getattr(torch.Tensor, name, None)
        return method
    return None


@cache
def neural_function(operator: Any) -> Callable[..., Any] | None:
    """The function of ``torch._C._nn`` with the name and the arguments of an ATen operator; None without one.

    These are the functions behind those of `torch.nn.functional`, by which executors claim operations.
    """
    if not isinstance(operator, OpOverload) or any(map(_only_operators_take, schema_of(operator).arguments)):
        return None
    namespace, _, name = schema_of(operator).name.partition("::")
    function: Callable[..., Any] | None = getattr(neural_functions, name, None) if namespace == "aten" else None
    return function


def _only_operators_take(argument: Any) -> bool:
    """Whether operators differ from functions in an argument.

    Functions of losses have another default for the reduction, and functions take no list of tensors and None.
    """
    return argument.name == "reduction" or str(argument.type) == "List[Optional[Tensor]]"

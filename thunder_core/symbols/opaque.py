"""Symbols of torch functions that have no row."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from types import MethodWrapperType
from typing import Any, Final

import torch

from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols import functions
from thunder_core.symbols.naming import function_name, method_name, operator_name

OPAQUE: Final = frozenset({Tag.OPAQUE})
LOCAL: Final = frozenset({Tag.OPAQUE, Tag.LOCAL})
_OPERATORS_OF_PYTORCH: Final = ("torch.ops.aten.", "torch.ops.prims.")

ASSIGNS: Final = frozenset({functions.set_attribute, functions.delete_attribute})
"""Assignments to a property without a function; the table has those that write the tensor's storage."""

SETS_REQUIRES_GRAD: Final = frozenset({torch.Tensor.requires_grad_, functions.set_requires_grad})
"""Functions that do nothing if the tensor's flag has the value already."""

_SETTERS: Final = {"data": "set_data", "grad": "set_grad", "requires_grad": "set_requires_grad"}
_RECORDED: Final = frozenset({Tag.AUTOGRAD, Tag.AS_RECORDED})
_CHANGES: Final = _RECORDED | {Tag.CHANGES_AUTOGRAD}
_LEAF: Final = _CHANGES | {Tag.CHANGES_LEAF}
_RUNS: Final = _RECORDED | {Tag.RUNS_AUTOGRAD}

_TAGS: Final = {
    torch.Tensor.requires_grad_: _LEAF,
    torch.Tensor.retain_grad: _LEAF,
    functions.set_requires_grad: _LEAF,
    functions.set_grad: _LEAF,
    functions.set_data: _CHANGES,
    torch.Tensor.register_hook: frozenset({Tag.CHANGES_AUTOGRAD, Tag.HOOK}),
    torch.Tensor.register_post_accumulate_grad_hook: _CHANGES | {Tag.HOOK},
    torch.autograd.grad: _RUNS,
    torch.autograd.backward: _RUNS,
    torch.Tensor.backward: _RUNS,
    torch.ops.aten.detach.default: frozenset({Tag.DETACH}),
    torch.ops.aten.as_strided.default: frozenset({Tag.STORAGE_VIEW}),
}
"""Tags of functions without a row that passes treat like functions with one."""

_ASSERTIONS: Final = frozenset({"_assert_async", "_assert_scalar"})
"""Names of functions in `torch`, and of its operators, that raise an exception if a condition does not hold."""

_OF_LISTS: Final = ("_foreach_", "_fused_adagrad_", "_fused_adam", "_fused_sgd_")
"""First parts of names of functions in `torch` that compute the items of lists by elementwise functions or norms."""


def opaque_symbol(func: Callable[..., Any]) -> Symbol:
    """A symbol for any callable that PyTorch passes to a torch-function handler."""
    if isinstance(func, MethodWrapperType):
        return _property_symbol(func)
    if isinstance(func, OpOverload | OpOverloadPacket):
        return Symbol(operator_name(func), func, tags=_tags(func))
    method = method_name(func)
    if method is not None:
        return Symbol(method, func, CallStyle.METHOD, _tags(func))
    name = function_name(func)
    if name is None:
        return callable_symbol(func)
    return Symbol(name, func, tags=_tags(func))


def _tags(func: Callable[..., Any]) -> frozenset[Tag]:
    name = getattr(func, "__name__", "").partition(".")[0]  # without the overload of an operator
    tags = OPAQUE | _TAGS.get(func, frozenset())
    of_torch = func is getattr(torch, name, None)
    if of_torch and name.startswith(_OF_LISTS):
        tags |= {Tag.TAKES_FLOATS}
    if name in _ASSERTIONS and (of_torch or getattr(func, "namespace", "") == "aten"):
        tags |= {Tag.ASSERTION}
    return tags


def callable_symbol(func: Callable[..., Any], name: str | None = None) -> Symbol:
    """A new symbol, with `Tag.LOCAL`, for a callable without a dotted name.

    Its name is derived from ``name``, or from the callable.
    """
    words = name or str(getattr(func, "__qualname__", type(func).__name__))
    return Symbol(re.sub(r"\W+", "_", words).strip("_"), func, tags=LOCAL)


def called_name(symbol: Symbol) -> str:
    """The name of a symbol for messages: ``Function.apply`` for that of an autograd.Function."""
    owner = getattr(symbol.target, "__self__", None)
    return f"{owner.__qualname__}.apply" if isinstance(owner, type) else symbol.name


def property_name(func: Any) -> str:
    """The property that ``torch.Tensor.<property>.__get__`` and the like belong to."""
    descriptor = func.__self__
    return str(getattr(descriptor, "fget", descriptor).__name__)


def _property_symbol(func: Any) -> Symbol:
    """The symbol of ``torch.Tensor.<property>.__get__``, ``__set__`` or ``__delete__``."""
    name, access = property_name(func), func.__name__
    if access == "__get__":
        return Symbol(name, func, CallStyle.ATTRIBUTE, _tags(func))
    if name in _SETTERS and (access == "__set__" or name == "grad"):  # without a gradient, `grad` is None
        return _statement_symbol(_SETTERS[name])
    return _statement_symbol("set_attribute" if access == "__set__" else "delete_attribute")


@cache
def _statement_symbol(name: str) -> Symbol:
    function = getattr(functions, name)
    return Symbol(f"thunder_core.symbols.{name}", function, tags=_tags(function))


def is_of_pytorch(symbol: Symbol) -> bool:
    """Whether a symbol is neither a function of the program nor an operator of another library."""
    operator = symbol.name.startswith("torch.ops.") and not symbol.name.startswith(_OPERATORS_OF_PYTORCH)
    return Tag.LOCAL not in symbol.tags and not operator

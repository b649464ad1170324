"""Names and symbols for torch functions that have no row."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType, MethodType, MethodWrapperType
from typing import Any, Final

import torch

from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.symbols import functions

OPAQUE: Final = frozenset({Tag.OPAQUE})
LOCAL: Final = frozenset({Tag.OPAQUE, Tag.LOCAL})

# Where public functions live, most preferred name first.
_NAMESPACES: Final = (
    "torch",
    "torch.nn.functional",
    "torch.special",
    "torch.linalg",
    "torch.fft",
    "torch.nested",
    "torch.sparse",
    "torch.signal.windows",
    "torch.nn.init",
    "torch.autograd",
    "torch._C._nn",
    "torch._C._linalg",
    "torch._C._fft",
    "torch._C._special",
    "torch._C._sparse",
    "torch._C._nested",
    "torch._C._VariableFunctions",
    "torch._C",
    "torch.functional",
    "torch.Tensor",
    "thunder_core.symbols",
)

_SETTERS: Final = {"data": "set_data", "grad": "set_grad", "requires_grad": "set_requires_grad"}


def evaluate(name: str) -> Any:
    """The object that a dotted name stands for. Raises LookupError when there is none."""
    path, *parts = name.split(".")
    value: Any = torch if path == "torch" else _import(path)
    for part in parts:
        path = f"{path}.{part}"
        value = getattr(value, part) if hasattr(value, part) else _import(path)
    return value


def _import(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ImportError as error:
        raise LookupError(f"{path} is neither an attribute nor a module") from error


def opaque_symbol(func: Callable[..., Any]) -> Symbol:
    """A symbol for any callable that torch hands to a torch-function handler."""
    if isinstance(func, MethodWrapperType):
        return _property_symbol(func)
    if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return Symbol(_operator_name(func), func, tags=OPAQUE)
    method = _tensor_methods().get(func)
    if method is not None:
        return Symbol(method, func, CallStyle.METHOD, OPAQUE)
    name = function_name(func)
    if name is None:
        return callable_symbol(func)
    return Symbol(name, func, tags=OPAQUE)


def callable_symbol(func: Callable[..., Any], name: str | None = None) -> Symbol:
    """A symbol for a callable that no dotted name stands for; `Tag.LOCAL` says so. Each call makes a new one."""
    words = name or str(getattr(func, "__qualname__", type(func).__name__))
    return Symbol(re.sub(r"\W+", "_", words).strip("_"), func, tags=LOCAL)


def function_name(func: Callable[..., Any]) -> str | None:
    """The dotted name that evaluates to ``func``; None for local functions, lambdas and bound methods."""
    public = _public_names().get(func)
    if public is not None:
        return public
    module, qualified = getattr(func, "__module__", None), getattr(func, "__qualname__", None)
    if not module or not qualified or "<" in qualified or module == "__main__":
        return None
    name = f"{module}.{qualified}"
    try:
        return name if evaluate(name) is func else None
    except LookupError:
        return None


def _property_symbol(func: Any) -> Symbol:
    """The symbol of ``torch.Tensor.<property>.__get__``, ``__set__`` or ``__delete__``."""
    name, access = property_name(func), func.__name__
    if access == "__get__":
        return Symbol(name, func, CallStyle.ATTRIBUTE, OPAQUE)
    if access == "__set__" and name in _SETTERS:
        return _function_symbol(_SETTERS[name])
    return _function_symbol("set_attribute" if access == "__set__" else "delete_attribute")


def property_name(func: Any) -> str:
    """The property that ``torch.Tensor.<property>.__get__`` and the like belong to."""
    descriptor = func.__self__
    return str(getattr(descriptor, "fget", descriptor).__name__)


@cache
def _function_symbol(name: str) -> Symbol:
    return Symbol(f"thunder_core.symbols.{name}", getattr(functions, name), tags=OPAQUE)


def _operator_name(func: Any) -> str:
    """``torch.ops.aten.add.Tensor`` for an overload, ``torch.ops.aten.add`` for a packet."""
    qualified = func._qualified_op_name if isinstance(func, torch._ops.OpOverloadPacket) else func._schema.name
    dotted = "torch.ops." + str(qualified).replace("::", ".")
    return dotted if isinstance(func, torch._ops.OpOverloadPacket) else f"{dotted}.{func._overloadname}"


@cache
def _public_names() -> dict[Any, str]:
    """Callables of the public namespaces, by themselves."""
    names: dict[Any, str] = {}
    for namespace in _NAMESPACES:
        module = evaluate(namespace)
        for attribute in dir(module):
            value = getattr(module, attribute)
            if callable(value) and not attribute.startswith("__") and _hashable(value):
                names.setdefault(value, f"{namespace}.{attribute}")
    return names


@cache
def _tensor_methods() -> dict[Any, str]:
    """Methods of ``torch.Tensor``, by themselves. Of two names of one method the plainer wins."""
    methods: dict[Any, str] = {}
    for attribute in sorted(dir(torch.Tensor), key=lambda name: (name.startswith("_"), name)):
        value = getattr(torch.Tensor, attribute)
        # static and class methods are builtins that do not take the tensor first
        if callable(value) and not isinstance(value, BuiltinFunctionType | MethodType | type):
            methods.setdefault(value, attribute)
    return methods


def _hashable(value: Any) -> bool:
    return type(value).__hash__ is not None

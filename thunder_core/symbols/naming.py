"""Convert functions to dotted names, and dotted names to functions."""

from __future__ import annotations

import importlib
import operator
import os
from collections.abc import Callable, Iterator
from functools import cache
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType
from typing import Any, Final

import torch

import thunder_core
from thunder_core.ir.symbol import CallStyle
from thunder_core.pytorch_internals import (
    OpOverloadPacket,
    overload_name,
    qualified_op_name,
    schema_of,
)

Function = Callable[..., Any]

BUILTINS: Final = tuple(f"torch._C.{name}" for name in ("_nn", "_linalg", "_fft", "_special", "_sparse", "_nested"))
"""Modules of builtin functions that other modules of PyTorch call, or rename."""

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
    *BUILTINS,
    "torch._C._VariableFunctions",
    "torch._C",
    "torch.functional",
    "torch.Tensor",
    "thunder_core.symbols",
)
_FOLDERS: Final = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (torch, thunder_core))
_ORIGINALS: Final = {"torch": "torch._C._VariableFunctions", "torch.Tensor": "torch._C.TensorBase"}
"""Where PyTorch's builtin functions are, besides the namespaces that programs use."""
_BUILTIN_FUNCTIONALS: Final = frozenset({"linear", "scaled_dot_product_attention", "gelu"})
"""Functions of `torch.nn.functional` that are in ``torch._C._nn``; that has others of the same names, too."""


def evaluate(name: str) -> Any:
    """The object with a dotted name, importing modules as needed. Raises LookupError if there is none."""
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


def existing_function(name: str) -> Function | None:
    """Like `evaluate` without importing below the root; for properties their getter; None when there is nothing."""
    root, *parts = name.split(".")
    value: Any = torch if root == "torch" else _import(root)
    for part in parts:
        value = getattr(value, part, None)
    return value if value is None or callable(value) else getter(value)


def original_function(name: str) -> Function | None:
    """Like `existing_function`, where the user has not replaced the function: ``torch.relu = mine``.

    Of a replaced function that PyTorch writes in Python there is no original: None.
    """
    value = existing_function(name)
    namespace, _, last = name.rpartition(".")
    if value is None or namespace.partition(".")[0] != "torch" or isinstance(value, type | MethodWrapperType):
        return value
    is_python = type(value) is FunctionType
    if is_python and value.__code__.co_filename.startswith(_FOLDERS):
        return value
    if namespace == "torch.nn.functional" and last in _BUILTIN_FUNCTIONALS:
        return existing_function(f"torch._C._nn.{last}")
    original = existing_function(f"{_ORIGINALS[namespace]}.{last}") if namespace in _ORIGINALS else None
    return original if is_python or original is not None else value


def getter(descriptor: Any) -> Function:
    """The function that torch hands over when the property is read."""
    function: Function = descriptor.__get__
    return function


def printed_name(name: str, style: CallStyle) -> str:
    """Methods and attributes are printed by their bare name."""
    return name if style is CallStyle.FUNCTION else name.removeprefix("torch.Tensor.")


def function_printed_as(name: str, style: CallStyle) -> Function:
    """The function with a printed name. Raises LookupError if there is none."""
    if style is CallStyle.GETITEM:
        return operator.getitem
    value = evaluate(name if style is CallStyle.FUNCTION else f"torch.Tensor.{name}")
    if style is CallStyle.ATTRIBUTE:
        return getter(value)
    if not callable(value):
        raise LookupError(f"{name} is not a function")
    function: Function = value
    return function


def function_name(func: Function) -> str | None:
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


def method_name(func: Function) -> str | None:
    """The name of a method of Tensor; None when ``func`` is none."""
    return _tensor_methods().get(func)


def operator_name(func: Any) -> str:
    """``torch.ops.aten.add.Tensor`` for an overload, ``torch.ops.aten.add`` for a packet."""
    if isinstance(func, OpOverloadPacket):
        return "torch.ops." + str(qualified_op_name(func)).replace("::", ".")
    return "torch.ops." + str(schema_of(func).name).replace("::", ".") + f".{overload_name(func)}"


@cache
def _public_names() -> dict[Any, str]:
    """Callables of the public namespaces, by themselves."""
    names: dict[Any, str] = {}
    for name, value in public_callables():
        names.setdefault(value, name)
    return names


def public_callables() -> Iterator[tuple[str, Any]]:
    """Callables of the public namespaces with their dotted names, the most preferred name of each first."""
    for namespace in _NAMESPACES:
        module = evaluate(namespace)
        for attribute in dir(module):
            value = getattr(module, attribute)
            if callable(value) and not attribute.startswith("__") and type(value).__hash__ is not None:
                yield f"{namespace}.{attribute}", value


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

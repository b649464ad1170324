"""The symbols that a file may name: PyTorch's operators, and those that Thunder and its plugins have rows for.

Names from a trace or a cache on disk are looked up here. Nothing is imported, no code of a module is run, and a
function is admitted only for what it is: a builtin function or method of PyTorch with an operator of that name, or a
function of PyTorch that `torch.overrides` lists. So a file cannot name `torch.load` or `torch.os.system`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from functools import cache
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MethodDescriptorType, ModuleType
from typing import Any, Final

import torch
from torch.overrides import get_overridable_functions

from thunder_core.ir.symbol import CallStyle
from thunder_core.pytorch_internals import (
    OpOverload,
    OpOverloadPacket,
    VariableFunctions,
    dispatch_get_all_op_names,
    schema_of,
)
from thunder_core.symbols.naming import BUILTINS
from thunder_core.symbols.registry import registry

_OPERATOR: Final = re.compile(r"torch\.ops\.(?P<namespace>\w+)\.(?P<name>\w+)(?:\.(?P<overload>\w+))?")

_OPTIONS: Final = """
    algorithm api_name approximate assert_msg attr activation binary_attr binary_post_op driver equation group_name
    indexing interpolation mode norm ord p pad_mode padding padding_side post_op_algorithm post_op_name red_op reduce
    reduce_op reduction rounding_mode side unary_algorithm unary_attr unary_post_op unary_post_op_algorithm UPLO
"""
"""Arguments of operators that are text. An operator with another one, which may name a file, is not admitted."""

_UNCHECKED: Final = frozenset({"inductor"})
"""Namespaces of operators that read memory without comparing offsets with its size."""

_PYTHON: Final = (torch, torch.functional, torch.nn.functional, torch.linalg, torch.fft, torch.special)
"""Modules of PyTorch whose functions `torch.overrides` lists."""

_FUNCTIONS: Final = """
    torch.autograd.backward torch.autograd.grad torch.as_tensor torch.clear_autocast_cache torch.get_rng_state
    torch.manual_seed torch.nested.nested_tensor torch.nn.functional.grouped_mm torch.nn.functional.scaled_grouped_mm
    torch.nn.functional.scaled_mm torch.set_rng_state torch.sparse.sum torch.tensor
"""
"""Other functions of PyTorch that programs call."""

_METHODS: Final = """
    backward bfloat16 bool byte cdouble cfloat char cpu cuda double element_size float half int is_shared istft long lu
    ndimension nelement new_tensor norm numpy pow pow_ register_hook register_post_accumulate_grad_hook resize resize_as
    short split stft tolist type unique unique_consecutive xpu
"""
"""Methods of tensors besides those that are operators."""

_SPECIAL_METHOD: Final = re.compile(
    "__[ir]?(?:add|and|div|floordiv|lshift|matmul|mod|mul|or|pow|rshift|sub|truediv|xor)__"
    "|__(?:bool|complex|contains|eq|float|ge|getitem|gt|index|int|invert|le|len|long|lt|ne|nonzero|setitem)__"
)

_NO_ATTRIBUTES: Final = frozenset({"_cdata", "_backward_hooks", "_post_accumulate_grad_hooks", "_python_dispatch"})
"""Attributes of tensors that are addresses, or hold Python objects."""


def is_admitted(name: str, style: CallStyle = CallStyle.FUNCTION) -> bool:
    """Whether a file may name the symbol that `Registry.symbol_named` returns for these arguments."""
    if (name, style) in _admitted or (name, style) in registry.catalogue.rows:
        return True
    admitted = _is_admitted(name, style)
    if admitted:
        _admitted.add((name, style))
    return admitted


def is_function_for_traces(name: str) -> bool:
    """Whether a file may name this function of Thunder's: one of `thunder_core.passes.operations`, all for traces."""
    path, _, plain = name.rpartition(".")
    if path != _OPERATIONS:
        return False
    function = vars(importlib.import_module(path)).get(plain)
    return isinstance(function, FunctionType) and function.__module__ == path and not plain.startswith("_")


_OPERATIONS: Final = "thunder_core.passes.operations"

_admitted: Final[set[tuple[str, CallStyle]]] = set()  # a name that is not may be one later, of a new operator


def _is_admitted(name: str, style: CallStyle) -> bool:
    if style is CallStyle.FUNCTION:
        return _is_operator(name) if name.startswith("torch.ops.") else _is_function(name)
    if style is CallStyle.METHOD:
        return _is_method(name)
    return style is CallStyle.GETITEM or _is_attribute(name)


def static_value(name: str) -> Any:
    """The object with a dotted name that begins with ``torch``, without running code to find it.

    Raises LookupError if there is none, or if it is an attribute that a module or class computes.
    """
    root, *parts = name.split(".")
    if root != "torch":
        raise LookupError(f"{name} is not a name of PyTorch")
    value: Any = torch
    for part in parts:
        if isinstance(value, ModuleType):
            found = vars(value).get(part, _NOTHING)
        elif value is VariableFunctions and not part.startswith("__"):
            found = getattr(value, part, _NOTHING)
        else:
            found = inspect.getattr_static(value, part, _NOTHING) if isinstance(value, type) else _NOTHING
        if found is _NOTHING:
            raise LookupError(f"there is no {name}")
        value = found
    return value


_NOTHING: Final = object()


def _is_operator(name: str) -> bool:
    """Whether this is ``torch.ops.namespace.name``, possibly with an overload, of PyTorch's dispatcher."""
    match = _OPERATOR.fullmatch(name)
    if match is None or match["namespace"] in _UNCHECKED:
        return False
    packet = getattr(getattr(torch.ops, match["namespace"]), match["name"], None)
    if not isinstance(packet, OpOverloadPacket):
        return False
    overloads = packet.overloads() if match["overload"] is None else [match["overload"]]
    operators = [getattr(packet, name, None) for name in overloads]
    if match["overload"] is None:  # TorchScript's overloads compute what Python's operators do
        operators = [operator for operator in operators if _is_dispatched(operator)]
    return bool(operators) and all(_is_dispatched(operator) and _has_options_only(operator) for operator in operators)


def _is_dispatched(operator: Any) -> bool:
    """Whether this is an operator of PyTorch's dispatcher, and not of TorchScript alone, as `aten::save` is."""
    if not isinstance(operator, OpOverload):
        return False
    schema = schema_of(operator)
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    if name not in _operators():
        _operators.cache_clear()  # it may be new
    return name in _operators()


@cache
def _operators() -> frozenset[str]:
    """The operators of PyTorch's dispatcher."""
    return frozenset(dispatch_get_all_op_names())


@cache
def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _has_options_only(operator: Any) -> bool:
    """Whether all arguments of the operator that are text are options."""
    arguments = schema_of(operator).arguments
    return all("str" not in str(argument.type) or argument.name in _words(_OPTIONS) for argument in arguments)


def _is_aten(name: str) -> bool:
    """Whether an ATen operator of this name is admitted."""
    return _is_operator(f"torch.ops.aten.{name}")


def _is_function(name: str) -> bool:
    try:
        value = static_value(name)
    except LookupError:
        return False
    if isinstance(value, type) or getattr(type(value), "__hash__", None) is None:
        return False
    if isinstance(value, BuiltinFunctionType):
        return name in _words(_FUNCTIONS) or value in registry.catalogue.spellings or _is_builtin_operator(value)
    if not isinstance(value, FunctionType):
        return False
    return name in _words(_FUNCTIONS) or value in registry.catalogue.spellings or value in _python_functions()


def _is_builtin_operator(function: BuiltinFunctionType) -> bool:
    """Whether a builtin function of PyTorch calls an admitted operator of its name."""
    name = function.__name__
    if function not in _builtins():
        return False
    prefixes = ("", "linalg_", "fft_", "special_", "sparse_", "nested_")
    return any(_is_aten(name if name.startswith(prefix) else prefix + name) for prefix in prefixes)


@cache
def _builtins() -> frozenset[Any]:
    """The builtin functions of PyTorch that its operators are called by."""
    owners = [VariableFunctions, *[static_value(name) for name in BUILTINS]]
    values = [getattr(owner, name) for owner in owners for name in dir(owner) if not name.startswith("__")]
    return frozenset([value for value in values if isinstance(value, BuiltinFunctionType)])


@cache
def _python_functions() -> frozenset[Any]:
    """The functions on tensors that PyTorch writes in Python."""
    lists = get_overridable_functions()
    functions = [value for module in _PYTHON for value in lists[module]]
    functions += [value for name, value in vars(torch.nn.init).items() if name.endswith("_") and name[0] != "_"]
    return frozenset([value for value in functions if isinstance(value, FunctionType)])


def _is_method(name: str) -> bool:
    value = inspect.getattr_static(torch.Tensor, name, None)
    if not isinstance(value, FunctionType | MethodDescriptorType) and not _SPECIAL_METHOD.fullmatch(name):
        return False
    if name.startswith("__"):
        return _SPECIAL_METHOD.fullmatch(name) is not None
    known = registry.catalogue.spellings
    return name in _words(_METHODS) or _is_aten(name) or getattr(torch.Tensor, name, None) in known


def _is_attribute(name: str) -> bool:
    value = inspect.getattr_static(torch.Tensor, name, None)
    if not isinstance(value, GetSetDescriptorType | property) or name.startswith("__"):
        return False
    return name not in _NO_ATTRIBUTES

"""Operators of TorchScript, as calls of PyTorch functions, or as Python on numbers, strings, lists and dictionaries."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from types import BuiltinFunctionType
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import DisableTorchFunction, disable_current_modes, schema_of
from thunder_core.symbols.operators import torch_call
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_plugin_torchscript.pytorch_internals import (
    dispatch_find_schema_or_throw,
    jit_get_operation,
    parse_schema,
)

_MEMORY_FORMATS: Final = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)
_INTEGERS: Final = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_LAYOUTS: Final = (torch.strided, torch.sparse_coo)


@cache
def number_of(dtype: torch.dtype) -> int:
    """TorchScript's number of a dtype."""
    number: Any = jit_get_operation("prim::dtype")[0]
    with disable_current_modes(), DisableTorchFunction():
        return int(number(torch.empty(0, dtype=dtype)))


@cache
def dtype_of(number: int) -> torch.dtype:
    """The dtype with a number of TorchScript."""
    with disable_current_modes(), DisableTorchFunction():
        dtype: torch.dtype = torch.ops.aten.empty.memory_format([0], dtype=number).dtype
    return dtype


_FROM_NUMBERS: Final[dict[str, Callable[[int], Any]]] = {
    "ScalarType": dtype_of,
    "Layout": _LAYOUTS.__getitem__,
    "MemoryFormat": _MEMORY_FORMATS.__getitem__,
}
"""Conversions of TorchScript's numbers to arguments of Python functions, by the type in the operator's schema."""


def call(schema: str, args: list[Any]) -> Any:
    """The result of an operator.

    Args:
        schema: the schema as printed for a node of TorchScript.
        args: one for each argument of the schema.

    Raises:
        UnsupportedError: the operator is not supported.
        Exception: an exception of the operator.
    """
    name = schema.partition("(")[0]
    packet, _, overload = name.partition(".")
    function = _OF_TENSORS.get(name)
    if function is not None:
        return function(*args)
    if _is_dispatched(packet, overload):
        namespace, _, base = packet.partition("::")
        target = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
        return _dispatched(target, args)
    function = _OF_DATA.get(packet)
    parsed = _parsed(schema)
    if function is not None:
        result = function(*args)
        is_float = [str(returned.type) for returned in parsed.returns] == ["float"]
        return float(result) if is_float and type(result) in (int, TracedSize) else result  # 2**n is a float
    if packet.startswith("prim::") and [str(argument.type) for argument in parsed.arguments] == ["Tensor"]:
        return getattr(args[0], packet.removeprefix("prim::"))  # an attribute of tensors
    if any(argument.alias_info is not None and argument.alias_info.is_write for argument in parsed.arguments):
        raise _unknown(name)
    if not parsed.returns or any(_holds_tensor(arg) for arg in args):
        raise _unknown(name)
    return _evaluate(packet, args)


def _evaluate(name: str, args: list[Any]) -> Any:
    """The result of an operator of TorchScript's interpreter, with numbers of the program as constants of this call."""
    try:
        evaluate: Any = jit_get_operation(name)[0]
    except RuntimeError as error:
        raise _unknown(name) from error
    constants = list(map(_constant, args))
    with disable_current_modes(), DisableTorchFunction():
        return evaluate(*constants)


def refuse(what: str) -> UnsupportedError:
    """The error for a part of TorchScript that cannot be recorded."""
    return UnsupportedError(
        f"a program in TorchScript {what}, which is not recorded",
        location=user_location(),
        advice=(
            "call the Python function that it was scripted from",
            "or call it outside of the compiled function, and pass the result",
        ),
    )


def _unknown(name: str) -> UnsupportedError:
    return refuse(f"calls {name}")


@cache
def _parsed(schema: str) -> Any:
    return parse_schema(schema)


@cache
def _is_dispatched(name: str, overload: str) -> bool:
    """Whether an operator has kernels, other than those of TorchScript's interpreter."""
    try:
        dispatch_find_schema_or_throw(name, overload)
    except RuntimeError:
        return False
    return True


def _dispatched(target: Any, args: list[Any]) -> Any:
    """An operator with kernels, as the function that Python code calls for it."""
    positional: list[Any] = []
    kwargs: dict[str, Any] = {}
    last = 0
    for argument, value in zip(schema_of(target).arguments, args, strict=True):
        value = _as_python_takes(argument, value)
        default = argument.has_default_value() and _same(argument.default_value, value)
        if argument.kwarg_only:
            if not default:
                kwargs[argument.name] = value
            continue
        positional.append(value)
        if not default:
            last = len(positional)
    function, positional_args, kwargs = torch_call(target, tuple(positional[:last]), kwargs)
    if function is target:
        function = _nn_function(target) or target
    return function(*positional_args, **kwargs)


@cache
def _nn_function(target: Any) -> Callable[..., Any] | None:
    """The function of `torch.nn.functional` for an operator without a function in `torch`, such as ``linear``."""
    if schema_of(target).overload_name or any(argument.name == "reduction" for argument in schema_of(target).arguments):
        return None
    function: Any = getattr(torch.nn.functional, schema_of(target).name.partition("::")[2], None)
    return function if isinstance(function, BuiltinFunctionType) else None


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and type(one) in (int, float, bool, str, type(None)) and one == other


def _as_python_takes(argument: Any, value: Any) -> Any:
    kind = str(argument.real_type).removeprefix("Optional[").removesuffix("]")
    convert = _FROM_NUMBERS.get(kind)
    return convert(value) if convert is not None and type(value) is int else value


def _holds_tensor(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_tensor, value))
    if isinstance(value, dict):
        return any(map(_holds_tensor, value.values()))
    return isinstance(value, torch.Tensor)


def _constant(value: Any) -> Any:
    """A number of the program as the constant of this call, which is checked."""
    if type(value) is TracedSize:
        return int(value)
    if type(value) is TracedNumber:
        return value.value()
    if isinstance(value, list | tuple):
        return type(value)(map(_constant, value))
    return value


def _append(values: list[Any], value: Any) -> list[Any]:
    values.append(value)
    return values


def _extend(values: list[Any], others: list[Any]) -> None:
    values.extend(others)


def _set_item(values: Any, key: Any, value: Any) -> Any:
    values[key] = value
    return values


def _delete(values: Any, key: Any) -> None:
    del values[key]


def _slice(values: Any, start: Any, end: Any, step: Any) -> Any:
    return values[start:end:step]


def _add_in_place(values: Any, others: Any) -> Any:
    values += others
    return values


def _format(text: str, *values: Any) -> str:
    head, *rest = text.split("{}")
    return head + "".join([_text(value) + part for value, part in zip(values, rest, strict=False)])


def _text(value: Any) -> str:
    """A string conversion, which differs from Python's for floats and tensors.

    Raises:
        UnsupportedError: the value is a float or a tensor.
    """
    if type(value) in (str, int, bool, TracedSize) or value is None:
        return str(value)
    if isinstance(value, list) and all(type(item) in (int, TracedSize) for item in value):
        return str(value)
    raise refuse(f"converts to a string a {type(value).__name__}")


def _tensor(data: Any, dtype: Any, device: Any, requires_grad: Any) -> Any:
    options: dict[str, Any] = {"requires_grad": True} if requires_grad else {}
    return torch.tensor(data, **_options(dtype, device), **options)


def _as_tensor(data: Any, dtype: Any, device: Any) -> Any:
    return torch.as_tensor(data, **_options(dtype, device))


def _options(dtype: Any, device: Any) -> dict[str, Any]:
    options = {"dtype": None if dtype is None else dtype_of(dtype), "device": device}
    return {name: option for name, option in options.items() if option is not None}


def _number_as_tensor(number: Any) -> Any:
    kind = float if isinstance(number, float) else bool if isinstance(number, bool) else int
    return torch.scalar_tensor(number, dtype={float: torch.float64, bool: torch.bool, int: torch.int64}[kind])


def _implicit(tensor: Any) -> Any:
    return tensor.item()


def _as_int(value: Any) -> Any:
    return value if type(value) is TracedSize else int(value)


def _unwrap(value: Any) -> Any:
    if value is None:
        raise torch.jit.Error("Unwrapping null optional")
    return value


def _fill_range(count: Any) -> list[int]:
    return list(range(count))


_OF_TENSORS: Final[dict[str, Callable[..., Any]]] = {
    # values of tensors
    "aten::Bool.Tensor": bool,
    "aten::Int.Tensor": lambda tensor: tensor.item() if tensor.dtype in _INTEGERS else int(tensor),
    "aten::Float.Tensor": float,
    "aten::IntImplicit": _implicit,
    "aten::FloatImplicit": _implicit,
    "aten::ScalarImplicit": _implicit,
    "aten::item": _implicit,
    # their metadata
    "aten::size": lambda tensor: list(tensor.shape),
    "aten::size.int": lambda tensor, dim: tensor.shape[dim],
    "aten::stride": lambda tensor: list(tensor.stride()),
    "aten::stride.int": lambda tensor, dim: tensor.stride(dim),
    "aten::len.Tensor": lambda tensor: tensor.shape[0],
    "aten::dim": lambda tensor: tensor.dim(),
    "aten::numel": lambda tensor: tensor.numel(),
    "aten::is_floating_point": lambda tensor: tensor.is_floating_point(),
    "aten::is_complex": lambda tensor: tensor.is_complex(),
    "aten::is_contiguous": lambda tensor: tensor.is_contiguous(),
    "aten::requires_grad": lambda tensor: tensor.requires_grad,
    "prim::dtype": lambda tensor: number_of(tensor.dtype),
    "prim::layout": lambda tensor: _LAYOUTS.index(tensor.layout),
    "prim::type": lambda device: device.type,
    "prim::index": lambda device: device.index,
}
"""Reads of tensors, by name with overload."""

_OF_DATA: Final[dict[str, Callable[..., Any]]] = {
    # tensors from data
    "prim::NumToTensor": _number_as_tensor,
    "aten::tensor": _tensor,
    "aten::as_tensor": _as_tensor,
    # numbers
    "aten::Bool": bool,
    "aten::Int": _as_int,
    "aten::Float": float,
    "aten::str": _text,
    "aten::add": operator.add,
    "aten::sub": operator.sub,
    "aten::mul": operator.mul,
    "aten::div": operator.truediv,
    "aten::floordiv": operator.floordiv,
    "aten::remainder": operator.mod,
    "aten::pow": operator.pow,
    "aten::neg": operator.neg,
    "aten::floor": math.floor,
    "aten::ceil": math.ceil,
    "aten::sqrt": lambda number: math.sqrt(number),  # read at the call: symbolic sizes stay symbolic
    "aten::abs": abs,
    "prim::abs": abs,
    "prim::min": min,
    "prim::max": max,
    "aten::eq": operator.eq,
    "aten::ne": operator.ne,
    "aten::lt": operator.lt,
    "aten::le": operator.le,
    "aten::gt": operator.gt,
    "aten::ge": operator.ge,
    "aten::__and__": operator.and_,
    "aten::__or__": operator.or_,
    "aten::__xor__": operator.xor,
    "aten::__not__": operator.not_,
    "aten::__is__": operator.is_,
    "aten::__isnot__": operator.is_not,
    "aten::__range_length": lambda start, end, step: len(range(start, end, step)),
    "aten::__derive_index": lambda index, start, step: start + index * step,
    # lists, dictionaries, strings
    "aten::len": len,
    "aten::list": list,
    "aten::copy": lambda values: values.copy(),
    "aten::append": _append,
    "aten::extend": _extend,
    "aten::insert": lambda values, index, value: values.insert(index, value),
    "aten::pop": lambda values, *args: values.pop(*args),
    "aten::clear": lambda values: values.clear(),
    "aten::reverse": lambda values: values.reverse(),
    "aten::slice": _slice,
    "aten::__getitem__": operator.getitem,
    "aten::_set_item": _set_item,
    "aten::Delete": _delete,
    "aten::__contains__": operator.contains,
    "aten::add_": _add_in_place,
    "aten::keys": lambda values: list(values.keys()),
    "aten::values": lambda values: list(values.values()),
    "aten::items": lambda values: list(values.items()),
    "aten::get": lambda values, *args: values.get(*args),
    "aten::format": _format,
    "prim::rangelist": _fill_range,
    # modes
    "aten::is_grad_enabled": torch.is_grad_enabled,
    "aten::set_grad_enabled": torch.set_grad_enabled,
    "aten::_unwrap_optional": _unwrap,
    "prim::unchecked_unwrap_optional": _unwrap,
}
"""Implementations of operators without kernels, for all overloads."""

"""Conversions to another dtype, device or layout: all of them are ``Tensor.to``."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Adapter, Row, Spelling, row

_Call = tuple[tuple[Any, ...], dict[str, Any]]

_DTYPE_METHODS: Final = {
    "float": torch.float32,
    "double": torch.float64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "long": torch.int64,
    "int": torch.int32,
    "short": torch.int16,
    "char": torch.int8,
    "byte": torch.uint8,
    "bool": torch.bool,
    "cfloat": torch.complex64,
    "cdouble": torch.complex128,
    "chalf": torch.complex32,
}

_DEVICE_FORM: Final = ("device", "dtype", "non_blocking", "copy")
_DTYPE_FORM: Final = ("dtype", "non_blocking", "copy")
_OTHER_FORM: Final = ("other", "non_blocking", "copy")


def to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    """``input.to(device, dtype)``, in that order, with the flags as keywords where they are set."""
    if len(args) == 2 and not kwargs:
        return args, kwargs
    names = _form(args[1:])
    if len(args) - 1 > len(names):
        return None
    values = dict(zip(names, args[1:], strict=False))
    if values.keys() & kwargs.keys():
        return None
    values.update(kwargs)
    targets = [values.pop(name) for name in ("other", "device", "dtype") if values.get(name) is not None]
    rest = {name: value for name, value in values.items() if value is not None and value is not False}
    return (args[0], *targets), rest


def _form(positional: tuple[Any, ...]) -> tuple[str, ...]:
    """Names of the positional arguments of ``to``, by the type of the first."""
    if positional and isinstance(positional[0], torch.dtype):
        return _DTYPE_FORM
    if positional and isinstance(positional[0], torch.Tensor):
        return _OTHER_FORM
    return _DEVICE_FORM


def _to_dtype(dtype: torch.dtype) -> Adapter:
    return lambda args, kwargs: (
        ((args[0], dtype), kwargs) if len(args) == 1 and kwargs.keys() <= {"memory_format"} else None
    )


def _to_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    return ((args[0], "cpu"), kwargs) if len(args) == 1 and kwargs.keys() <= {"memory_format"} else None


def _type(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    return (args, kwargs) if len(args) == 2 and not kwargs and isinstance(args[1], torch.dtype) else None


ROWS: list[Row] = [
    row(
        "Tensor.to(...)",
        Spelling("torch.Tensor.to", adapter=to),
        Spelling("torch.Tensor.cpu", adapter=_to_cpu),
        Spelling("torch.Tensor.type", adapter=_type),
        *[Spelling(f"torch.Tensor.{name}", adapter=_to_dtype(dtype)) for name, dtype in _DTYPE_METHODS.items()],
        tags=(Tag.CAST,),
    ),
    row("Tensor.type_as(input, other)"),
]

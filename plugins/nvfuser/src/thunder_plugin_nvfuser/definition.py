"""Fusion definitions as Python source. This module does not import nvFuser.

The source is executed, saved, and shown in reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_nvfuser.strides import stride_order

DATA_TYPES: Final = {
    torch.float64: "Double",
    torch.float32: "Float",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Int",
    torch.int32: "Int32",
    torch.bool: "Bool",
}
"""nvFuser's names of dtypes. Other dtypes are declined."""
_HALVES: Final = (torch.float16, torch.bfloat16)


Metadata = tuple[Sequence[int], torch.dtype]
"""A shape and a dtype."""


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor of the definition: the name of its variable, sizes and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Number:
    """A constant operand of ``dtype``; nvFuser represents it in double precision, in 64 bits, or as a bool."""

    value: bool | int | float
    dtype: torch.dtype

    def text(self) -> str:
        """The expression that creates it."""
        if self.dtype is torch.bool:
            return f"fd.define_scalar({bool(self.value)}, dtype=DataType.Bool)"
        if not self.dtype.is_floating_point:
            return f"fd.define_scalar({int(self.value)}, dtype=DataType.Int)"
        value = float(self.value)
        text = repr(value) if math.isfinite(value) else f'float("{value}")'
        return f"fd.define_scalar({text}, dtype=DataType.Double)"


class Definition:
    """Writes a definition, statement by statement.

    Attributes:
        lines: the body of the function that defines the fusion.
        results: proxies of the results of the operation that is being written; None for unused ones.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.results: tuple[TensorProxy | None, ...] = ()
        self._count = 0
        self._final: set[str] = set()

    def add_input(self, proxy: TensorProxy) -> Value:
        """A tensor that the region reads. Sizes are constants, as in traces.

        Traces with symbolic sizes would need ``static_sizes=False`` here, and symbols where rows write sizes.
        """
        sizes, strides = [int(n) for n in proxy.shape], [int(n) for n in proxy.stride]
        name = self._name()
        data_type = f"DataType.{DATA_TYPES[proxy.dtype]}"
        call = f"fd.define_tensor(sizes={sizes}, strides={strides}, dtype={data_type}, static_sizes=True)"
        self.lines.append(f"{name} = {call}")
        self._final.add(name)  # an input that is returned must be copied
        return Value(name, tuple(sizes), proxy.dtype)

    def call(self, operation: str, *args: Any, gives: Metadata, **options: Any) -> Value:
        """A call of ``fd.ops``; ``gives`` has the shape and the dtype of its result."""
        (value,) = self.calls(operation, *args, gives=[gives], **options)
        return value

    def calls(self, operation: str, *args: Any, gives: Sequence[Metadata], **options: Any) -> list[Value]:
        """A call with several results."""
        values = [Value(self._name(), tuple(shape), dtype) for shape, dtype in gives]
        written = [*map(_text, args), *[f"{name}={_text(value)}" for name, value in options.items()]]
        names = ", ".join([value.name for value in values])
        self.lines.append(f"{names} = fd.ops.{operation}({', '.join(written)})")
        return values

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        """The value cast to another dtype; float16 and bfloat16 through float32, as in PyTorch."""
        if value.dtype is dtype:
            return value
        if torch.float32 not in (value.dtype, dtype) and (value.dtype in _HALVES or dtype in _HALVES):
            value = self.cast(value, torch.float32)
        return self.call("cast", value, gives=(value.shape, dtype), dtype=dtype)

    def broadcast(self, value: Value, shape: Sequence[int]) -> Value:
        """The value broadcast to a larger shape."""
        if value.shape == tuple(shape):
            return value
        dims = list(range(len(shape) - len(value.shape), len(shape)))
        gives = (shape, value.dtype)
        return self.call("broadcast_in_dim", value, gives=gives, shape=list(shape), broadcast_dims=dims)

    def full(self, shape: Sequence[int], value: float, dtype: torch.dtype) -> Value:
        """A tensor filled with a number; in float16 and bfloat16 cast from float32, so that it is rounded once."""
        dtype = torch.float32 if dtype in _HALVES else dtype
        number = Number(value, dtype)
        return self.call("full", gives=(shape, dtype), shape=list(shape), fill_value=number, dtype=dtype)

    def compute(self, operation: str, *operands: Any, dtype: torch.dtype, gives: torch.dtype | None = None) -> Value:
        """An elementwise operation on values and numbers, which are first cast to ``dtype`` and broadcast.

        Casts and broadcasts are explicit, instead of nvFuser's promotion. ``gives`` is the dtype of the result if it
        differs.
        """
        shape = torch.broadcast_shapes(*[operand.shape for operand in operands if isinstance(operand, Value)])
        ready = [
            self.broadcast(self.cast(operand, dtype), shape) if isinstance(operand, Value) else Number(operand, dtype)
            for operand in operands
        ]
        return self.call(operation, *ready, gives=(shape, gives or dtype))

    def where(self, condition: Value, chosen: Any, other: Any, dtype: torch.dtype) -> Value:
        """Elements of ``chosen`` where the condition is true, and of ``other`` elsewhere."""
        if not isinstance(chosen, Value) and not isinstance(other, Value):  # otherwise nvFuser chooses the dtype
            chosen = self.full((), chosen, dtype)
        values = [value for value in (condition, chosen, other) if isinstance(value, Value)]
        shape = torch.broadcast_shapes(*[value.shape for value in values])
        sides = [
            self.broadcast(self.cast(side, dtype), shape) if isinstance(side, Value) else Number(side, dtype)
            for side in (chosen, other)
        ]
        condition = self.broadcast(self.cast(condition, torch.bool), shape)
        return self.call("where", condition, *sides, gives=(shape, dtype))

    def add_output(self, value: Value, proxy: TensorProxy) -> None:
        """A result of the region with the strides of ``proxy``. Without an explicit order nvFuser chooses one."""
        if len(value.shape) > 1:
            order = stride_order(proxy.shape, proxy.stride)
            value = self.call("stride_order", value, gives=(value.shape, value.dtype), stride_order=order)
        elif value.name in self._final:
            value = self.call("set", value, gives=(value.shape, value.dtype))
        self._final.add(value.name)
        self.lines.append(f"fd.add_output({value.name})")

    def python(self) -> str:
        """The function ``define(fd)``, which refers to the name ``DataType``."""
        return "\n".join(["def define(fd):", *[f"    {line}" for line in self.lines]]) + "\n"

    def _name(self) -> str:
        self._count += 1
        return f"t{self._count - 1}"


def _text(value: Any) -> str:
    if isinstance(value, Value):
        return value.name
    if isinstance(value, Number):
        return value.text()
    if isinstance(value, torch.dtype):
        return f"DataType.{DATA_TYPES[value]}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_text, value))}]"
    return repr(value)

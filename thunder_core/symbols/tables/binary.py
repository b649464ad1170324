"""Elementwise functions of two and three tensors, their operators and reflected operators."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, Spelling, row, rows

_TAGS = (Tag.ELEMENTWISE,)


def reflected(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of ``f(other, input)`` from those of ``input.__rf__(other)``."""
    return ((args[1], args[0]), kwargs) if len(args) == 2 and not kwargs else None


def _reflected_division(tensor: torch.Tensor, other: Any) -> torch.Tensor:
    """``other / tensor`` as PyTorch computes it."""
    return torch.mul(torch.reciprocal(tensor), other)


ROWS: list[Row] = [
    row(
        "torch.add(input, other, *, alpha=1)",
        "Tensor.__add__(input, other)",
        "Tensor.__radd__(input, other)",
        inplace="Tensor.__iadd__(input, other)",
        tags=(*_TAGS, Tag.SUM, Tag.COMMUTATIVE),
    ),
    row(
        "torch.sub(input, other, *, alpha=1)",
        "torch.subtract",
        "Tensor.__sub__(input, other)",
        inplace="Tensor.__isub__(input, other)",
        tags=_TAGS,
    ),
    row("torch.rsub(input, other, *, alpha=1)", "Tensor.__rsub__(input, other)", tags=_TAGS),
    row(
        "torch.mul(input, other)",
        "torch.multiply",
        "Tensor.__mul__",
        "Tensor.__rmul__",
        inplace="Tensor.__imul__",
        tags=(*_TAGS, Tag.COMMUTATIVE),
    ),
    row(
        "torch.div(input, other, *, rounding_mode=None)",
        "torch.divide",
        "torch.true_divide(input, other)",
        "Tensor.true_divide(input, other)",
        "Tensor.__truediv__(input, other)",
        "Tensor.__div__(input, other)",
        inplace="Tensor.true_divide_(input, other) | Tensor.__itruediv__(input, other) | Tensor.__idiv__(input, other)",
        tags=_TAGS,
    ),
    row("Tensor.__rtruediv__(input, other)", "Tensor.__rdiv__", tags=_TAGS, decomposition=_reflected_division),
    row(
        "torch.pow(input, exponent)",
        "Tensor.__pow__(input, exponent/other)",
        Spelling("torch.Tensor.__rpow__", adapter=reflected),
        inplace="Tensor.__ipow__(input, exponent/other)",
        tags=_TAGS,
    ),
    row(
        "torch.floor_divide(input, other)",
        "Tensor.__floordiv__",
        Spelling("torch.Tensor.__rfloordiv__", adapter=reflected),
        inplace="Tensor.__ifloordiv__",
        tags=_TAGS,
    ),
    row(
        "torch.remainder(input, other)",
        "Tensor.__mod__",
        Spelling("torch.Tensor.__rmod__", adapter=reflected),
        inplace="Tensor.__imod__",
        tags=_TAGS,
    ),
    row("torch.bitwise_and(input, other)", "Tensor.__and__", "Tensor.__rand__", inplace="Tensor.__iand__", tags=_TAGS),
    row("torch.bitwise_or(input, other)", "Tensor.__or__", "Tensor.__ror__", inplace="Tensor.__ior__", tags=_TAGS),
    row("torch.bitwise_xor(input, other)", "Tensor.__xor__", "Tensor.__rxor__", inplace="Tensor.__ixor__", tags=_TAGS),
    row("torch.bitwise_left_shift(input, other)", Spelling("torch.Tensor.__rlshift__", adapter=reflected), tags=_TAGS),
    row("torch.bitwise_right_shift(input, other)", Spelling("torch.Tensor.__rrshift__", adapter=reflected), tags=_TAGS),
    row(
        "torch.where(condition, input, other)",
        "Tensor.where(input, condition, other)",
        overloads=("condition",),
        method=False,
        tags=_TAGS,
    ),
    *rows(
        """
        torch.eq(input, other) | Tensor.__eq__
        torch.ne(input, other) | torch.not_equal | Tensor.__ne__
        torch.lt(input, other) | torch.less | Tensor.__lt__
        torch.le(input, other) | torch.less_equal | Tensor.__le__
        torch.gt(input, other) | torch.greater | Tensor.__gt__
        torch.ge(input, other) | torch.greater_equal | Tensor.__ge__
        torch.logical_and(input, other)
        torch.logical_or(input, other)
        torch.logical_xor(input, other)
        torch.isclose(input, other, rtol=1e-05, atol=1e-08, equal_nan=False)
        torch.maximum(input, other)
        torch.minimum(input, other)
        torch.fmax(input, other)
        torch.fmin(input, other)
        torch.fmod(input, other)
        torch.float_power(input, exponent)
        torch.atan2(input, other) | torch.arctan2
        torch.copysign(input, other)
        torch.hypot(input, other)
        torch.heaviside(input, values)
        torch.nextafter(input, other)
        torch.xlogy(input, other) | special.xlogy
        torch.logaddexp(input, other)
        torch.logaddexp2(input, other)
        torch.gcd(input, other)
        torch.lcm(input, other)
        torch.ldexp(input, other)
        torch.igamma(input, other) | special.gammainc
        torch.igammac(input, other) | special.gammaincc
        torch.clamp(input, min=None, max=None) | torch.clip
        torch.clamp_min(input, min)
        torch.clamp_max(input, max)
        torch.lerp(input, end, weight)
        torch.addcmul(input, tensor1, tensor2, *, value=1)
        torch.addcdiv(input, tensor1, tensor2, *, value=1)
        """,
        tags=_TAGS,
    ),
    *rows(
        """
        torch.complex(real, imag)
        torch.polar(abs, angle)
        torch.special.xlog1py(input, other)
        torch.special.zeta(input, other)
        """,
        tags=_TAGS,
        method=False,
    ),
]

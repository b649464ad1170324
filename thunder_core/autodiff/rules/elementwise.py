"""Elementwise functions of several tensors, and conversions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule


@rule("torch.add")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Result:
    """``maybe_multiply(grad, alpha)`` for the second."""
    return torch.add(input, other, alpha=alpha), lambda g: (g, _times(g, alpha))


@rule("torch.sub")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Result:
    """``maybe_multiply(-grad, alpha)`` for the second."""
    return torch.sub(input, other, alpha=alpha), lambda g: (g, _times(-g, alpha))


@rule("torch.rsub")
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Result:
    """``other - alpha * input``."""
    return torch.rsub(input, other, alpha=alpha), lambda g: (_times(-g, alpha), g)


@rule("torch.mul")
def mul(input: Any, other: Any) -> Result:
    """``mul_tensor_backward``."""
    return torch.mul(input, other), lambda g: (g * other, g * input)


@rule("torch.div")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Result:
    """``div_tensor_self_backward`` and ``div_tensor_other_backward``.

    The second divides once more, as PyTorch does: where the quotient is kept anyway, the common one is used.
    """
    if rounding_mode is not None:
        return NotImplemented
    output = torch.div(input, other)
    return output, lambda g: (g / other, -g * (torch.div(input, other) / other))


@rule("torch.pow")
def pow(input: Any, exponent: Any) -> Result:
    """``pow_backward``, for an exponent that is a number; without the powers that are the number itself."""
    if isinstance(exponent, Tensor | complex):
        return NotImplemented
    power = float(exponent)

    def backward(g: Tensor) -> Tensor:
        if power == 0:
            return torch.zeros_like(input)
        return g if power == 1 else g * (power * (input if power == 2 else torch.pow(input, power - 1)))

    return torch.pow(input, exponent), backward


@rule("torch.where")
def where(condition: Tensor, input: Any, other: Any) -> Result:
    """``where(condition, grad, 0)`` and the other way round."""
    output = torch.where(condition, input, other)
    return output, lambda g: (None, torch.where(condition, g, 0), torch.where(condition, 0, g))


@rule("torch.masked_fill")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Result:
    """``grad.masked_fill(mask, 0)``, for a value that is a number."""
    if isinstance(value, Tensor):
        return NotImplemented
    return torch.masked_fill(input, mask, value), lambda g: torch.masked_fill(g, mask, 0)


@rule("Tensor.to")
def to(input: Tensor, *targets: Any, **options: Any) -> Result:
    """The way back."""

    def backward(g: Tensor) -> Tensor:
        return g if g.device == input.device else g.to(input.device, input.dtype)

    return input.to(*targets, **options), backward


@rule("Tensor.type_as")
def type_as(input: Tensor, other: Tensor) -> Result:
    """The way back."""
    if input.device != other.device:
        return NotImplemented
    return input.type_as(other), lambda g: g


def _times(gradient: Tensor, factor: Any) -> Tensor:
    """``maybe_multiply``."""
    return gradient if factor == 1 else gradient * factor

"""Elementwise functions: without the reshapes, constants and powers that autograd's formulas add.

The formulas of autograd for the functions of one tensor (``exp``, ``sigmoid``, ``gelu``, ...) are as short, so these
have no rules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.derivatives.rules import Result, rule


@rule("torch.add")
def add(input: Any, other: Any, *, alpha: Any = 1) -> Result:
    """``maybe_multiply(grad, alpha)`` for ``other``."""
    return torch.add(input, other, alpha=alpha), lambda g: (g, _times(g, alpha))


@rule("torch.sub")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Result:
    """``maybe_multiply(-grad, alpha)`` for ``other``."""
    return torch.sub(input, other, alpha=alpha), lambda g: (g, _times(-g, alpha))


@rule("torch.mul")
def mul(input: Any, other: Any) -> Result:
    """``mul_tensor_backward``."""
    return torch.mul(input, other), lambda g: (g * other, g * input)


@rule("torch.div")
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Result:
    """``div_tensor_self_backward`` and ``div_tensor_other_backward``.

    As in PyTorch, the gradient of ``other`` contains the quotient. It is written as a second division, which
    common-subexpression elimination merges with the first one if the partition saves the quotient anyway.
    """
    if rounding_mode is not None:
        return NotImplemented
    output = torch.div(input, other)
    return output, lambda g: (g / other, -g * (torch.div(input, other) / other))


@rule("torch.pow")
def pow(input: Any, exponent: Any) -> Result:
    """``pow_backward`` for an exponent that is a number, without the first power of ``input``."""
    if isinstance(exponent, Tensor | complex):
        return NotImplemented
    return torch.pow(input, exponent), lambda g: _pow_backward(g, input, float(exponent))


@rule("torch.square")
def square(input: Tensor) -> Result:
    """``pow_backward`` with exponent 2."""
    return torch.square(input), lambda g: _pow_backward(g, input, 2.0)


@rule("torch.where")
def where(condition: Tensor, input: Any, other: Any) -> Result:
    """``where(condition, grad, 0)`` and ``where(condition, 0, grad)``, where autograd creates tensors for the zeros."""
    output = torch.where(condition, input, other)
    return output, lambda g: (None, torch.where(condition, g, 0), torch.where(condition, 0, g))


@rule("torch.masked_fill")
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Result:
    """``grad.masked_fill(mask, 0)`` for a value that is a number."""
    if isinstance(value, Tensor):
        return NotImplemented
    return torch.masked_fill(input, mask, value), lambda g: torch.masked_fill(g, mask, 0)


def _times(gradient: Tensor, factor: Any) -> Tensor:
    """``maybe_multiply``."""
    return gradient if factor == 1 else gradient * factor


def _pow_backward(g: Tensor, input: Tensor, power: float) -> Tensor:
    if power == 0:
        return torch.zeros_like(input)
    return g if power == 1 else g * (power * (input if power == 2 else torch.pow(input, power - 1)))

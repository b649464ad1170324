"""Elementwise functions: without the constants and powers that autograd's formulas add.

The formulas of autograd for others (``mul``, ``exp``, ``gelu``, ...) are as short, so these have no rules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.derivatives.rules import Result, rule


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


def _pow_backward(g: Tensor, input: Tensor, power: float) -> Tensor:
    if power == 0:
        return torch.zeros_like(input)
    return g if power == 1 else g * (power * (input if power == 2 else torch.pow(input, power - 1)))

"""Elementwise functions of one tensor, each by its formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule
from thunder_core.symbols.naming import existing_function

_aten = torch.ops.aten

_Formula: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

FORMULAS: Final[dict[str, _Formula]] = {
    "torch.abs": lambda g, x, y: g * torch.sgn(x),
    "torch.clone": lambda g, x, y: g,
    "torch.cos": lambda g, x, y: g * -torch.sin(x),
    "torch.erf": lambda g, x, y: 2.0 / math.sqrt(math.pi) * torch.exp(-torch.pow(x, 2)) * g,
    "torch.exp": lambda g, x, y: g * y,
    "torch.expm1": lambda g, x, y: g * (y + 1),
    "torch.log": lambda g, x, y: g / x,
    "torch.log1p": lambda g, x, y: g / (x + 1),
    "torch.neg": lambda g, x, y: -g,
    "torch.reciprocal": lambda g, x, y: -g * (y * y),
    "torch.relu": lambda g, x, y: _aten.threshold_backward.default(g, y, 0),
    "torch.rsqrt": lambda g, x, y: -0.5 * g * torch.pow(y, 3),
    "torch.sigmoid": lambda g, x, y: _aten.sigmoid_backward.default(g, y),
    "torch.sin": lambda g, x, y: g * torch.cos(x),
    "torch.sqrt": lambda g, x, y: g / (2 * y),
    "torch.square": lambda g, x, y: g * (2.0 * x),
    "torch.tanh": lambda g, x, y: _aten.tanh_backward.default(g, y),
    "torch.Tensor.contiguous": lambda g, x, y: g,
    "F.silu": lambda g, x, y: _aten.silu_backward.default(g, x),
}
"""From the cotangent ``g``, the argument ``x`` and the result ``y`` to the gradient."""


def _add(name: str, formula: _Formula) -> None:
    function = existing_function(name.replace("F.", "torch.nn.functional."))
    assert function is not None

    @rule(name)
    def differentiate(input: Tensor, **options: Any) -> Result:
        output = function(input, **options)
        return output, lambda g: formula(g, input, output)


for _name, _formula in FORMULAS.items():
    _add(_name, _formula)


@rule("F.gelu")
def gelu(input: Tensor, *, approximate: str = "none") -> Result:
    """One kernel."""
    output = torch.nn.functional.gelu(input, approximate=approximate)
    return output, lambda g: _aten.gelu_backward.default(g, input, approximate=approximate)

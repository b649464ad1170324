"""Regions of operations that are drawn, against eager PyTorch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from nvfuser_programs import compare, compiled, reasons

UNARY = (torch.exp, torch.tanh, torch.abs, torch.neg, torch.sigmoid, torch.sin, F.silu, F.gelu, F.softplus)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, torch.atan2)
OTHER = (
    lambda x: x.sum(-1, keepdim=True),
    lambda x: x.softmax(-1),
    lambda x: x.transpose(0, 1),
    lambda x: x.to(torch.bfloat16),
    lambda x: x.float() * 1.5,
    lambda x: torch.where(x > 0, x, -0.5),
    lambda x: x.mean(0),
)


@pytest.mark.parametrize("seed", range(12))
def test_random_regions(seed: int) -> None:
    """Programs of a dozen operations, whatever shapes and dtypes come out."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        chance = random.Random(seed)
        values = [x, y]
        for _ in range(12):
            one, other = (chance.choice(values) for _ in range(2))
            kind = chance.choice((0, 1, 2))
            if kind == 1 and (one.ndim < 2 or other.ndim < 2 or one.shape == other.shape):
                values.append(chance.choice(BINARY)(one, other))
            elif kind == 2 and one.ndim == 2:
                values.append(chance.choice(OTHER)(one))
            else:
                values.append(chance.choice(UNARY)(one))
        return values[-4:]

    torch.manual_seed(seed)
    x, y = torch.randn(4, 4), torch.randn(4, 4)
    expected = program(x, y)
    jitted = compiled(program)
    actual = jitted(x, y)
    assert not any("refused" in reason for reason in reasons(jitted)), reasons(jitted)
    for one, other in zip(actual, expected, strict=True):
        tolerance = 3e-2 if other.dtype is torch.bfloat16 else 1e-2
        compare(one, other, tolerance, tolerance)

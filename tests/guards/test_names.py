"""Parameters may have any names, also those that a prologue would give its own variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder

TABLE = {"double": 2.0}
WHICH = "double"


def scaled(word: str) -> Callable[..., Any]:
    """Guards the captured word, which takes a variable for its value."""

    def program(v: torch.Tensor, d: torch.Tensor) -> torch.Tensor:
        return v * TABLE[WHICH] + d * len(word)

    return program


def call(args: torch.Tensor, kwargs: torch.Tensor, prologue: torch.Tensor) -> torch.Tensor:
    return args - kwargs * prologue


def builtin(len: torch.Tensor, tuple: torch.Tensor, type: torch.Tensor) -> torch.Tensor:
    return len - tuple * type


def generated(o1: torch.Tensor, modes: torch.Tensor, arguments: torch.Tensor) -> torch.Tensor:
    return o1 - modes * arguments * len(WHICH)


class Module(nn.Module):
    """Its guards loop over the modules that were called."""

    def __init__(self) -> None:
        super().__init__()
        self.word = "word"
        self.layer = nn.Linear(3, 3)

    def forward(self, d: torch.Tensor, v: torch.Tensor, m1: torch.Tensor) -> torch.Tensor:
        return self.layer(d) + len(self.word) * v + m1


@pytest.mark.parametrize(
    ("program", "count"), [(scaled("abc"), 2), (call, 3), (builtin, 3), (generated, 3), (Module(), 3)]
)
def test_names_of_parameters(program: Callable[..., Any], count: int) -> None:
    compiled = thunder.jit(program)
    for _ in range(2):
        tensors = [torch.randn(3, requires_grad=True) for _ in range(count)]
        found, expected = compiled(*tensors), program(*tensors)
        torch.testing.assert_close(found, expected)
        mine, eager = (torch.autograd.grad(result.sum(), tensors) for result in (found, expected))
        torch.testing.assert_close(mine, eager)
    assert thunder.cache_hits(compiled) == 1

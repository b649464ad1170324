"""Forward-mode differentiation around compiled programs, and inside of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import thunder
from tests.training.steps import leaf
from thunder_core.errors import UnsupportedError

# PyTorch's formulas of forward mode, and what linearize makes of a module
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:FutureWarning"),  # since PyTorch 2.15
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node:UserWarning"),
    pytest.mark.filterwarnings("ignore:Node .* target:UserWarning"),
]


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x


def dual(function: Callable[..., Any], x: torch.Tensor) -> Any:
    with forward_ad.dual_level():
        primal, tangent = forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.cos(x.detach()))))
        return primal.detach(), None if tangent is None else tangent.detach()


TRANSFORMATIONS: dict[str, Callable[..., Any]] = {
    "make_dual": dual,
    "jvp": lambda function, x: torch.func.jvp(function, (x,), (torch.cos(x.detach()),)),
    "jacfwd": lambda function, x: torch.func.jacfwd(function)(x),
    "linearize": lambda function, x: torch.func.linearize(function, x)[1](torch.cos(x.detach())),
}


@pytest.mark.parametrize("executors", [[], None])
@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.slow
def test_around(name: str, requires_grad: bool, executors: Any) -> None:
    """Eager under a level of forward mode, its own programs under torch.func; what was compiled before serves after."""
    transformation = TRANSFORMATIONS[name]
    x = torch.randn(3, requires_grad=requires_grad)
    for original in (program, nn.Sequential(nn.Linear(3, 4), nn.Tanh())):
        compiled = thunder.jit(original) if executors is None else thunder.jit(original, executors=executors)
        for called_before in (False, True):
            if called_before:
                compiled(x)
            torch.testing.assert_close(transformation(compiled, x), transformation(original, x))
        misses = thunder.cache_misses(compiled)
        compiled(x)
        assert thunder.cache_misses(compiled) == misses


def test_level_inside() -> None:
    with pytest.raises(UnsupportedError, match="forward-mode differentiation inside a compiled program"):
        thunder.jit(lambda x: dual(program, x))(leaf(3))
    x = torch.randn(3)
    compiled = thunder.jit(lambda x: torch.func.jvp(program, (x,), (x.cos(),)))
    torch.testing.assert_close(compiled(x), torch.func.jvp(program, (x,), (x.cos(),)))

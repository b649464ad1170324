"""What wrapper subclasses cannot do in a compiled program is refused with class and line, before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from wrapper_classes import LOG, Factor, Logged, Unnamed, numbers, pair

import thunder
from thunder_core.errors import UnsupportedError


class Thing:
    """Defines no equality."""

    by = 2

    def __getitem__(self, key: str) -> int:
        return self.by


def _retained(x: Tensor) -> Tensor:
    y = x * 2
    y.retain_grad()
    return y


def _backward_inside(x: Tensor) -> Tensor:
    (x * 2).sum().backward()
    return x


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], str]] = {
    "no protocol": (
        lambda x: x + 1,
        lambda: (Unnamed(numbers(3)),),
        "does not declare which tensors it holds.*Unnamed",
    ),
    "made inside, no protocol": (lambda x: Unnamed(x), lambda: (numbers(3),), "does not declare which.*Unnamed"),
    "context": (lambda x: x + 1, lambda: (Factor(numbers(3), Thing()),), "Thing, which cannot be compared.*Factor"),
    "requires_grad set": (
        lambda x: x.requires_grad_(),
        lambda: (pair(3),),
        "requires_grad_ changes or reads.*TwoTensor",
    ),
    "data set": (lambda x: setattr(x, "data", x * 2), lambda: (pair(3),), "__set__ changes or reads.*TwoTensor"),
    "retained gradients": (_retained, lambda: (pair(3).requires_grad_(),), "retain_grad changes or reads.*TwoTensor"),
    "backward inside": (_backward_inside, lambda: (pair(3).requires_grad_(),), "backward changes or reads.*TwoTensor"),
    "deepcopy": (lambda x: x.__deepcopy__({}), lambda: (pair(3),), "__deepcopy__ changes or reads.*TwoTensor"),
    "shape changed in place": (lambda x: x.t_(), lambda: (pair(3, 2),), "changes the shape.*TwoTensor"),
    "gradient of another class": (
        lambda x, y: x * y,
        lambda: (pair(3), numbers(3).requires_grad_()),
        "gradient that mul returns is not of the class.*TwoTensor",
    ),
    "derivative with effects": (
        lambda x: x.sin(),
        lambda: (Logged(numbers(3)).requires_grad_(),),
        "derivative of sin changes Python objects.*Logged",
    ),
    "made inside, requires grad": (
        lambda x: TwoTensor(x, x * 1) * 2,
        lambda: (numbers(3).requires_grad_(),),
        "the program creates a tensor that requires grad.*TwoTensor",
    ),
    "a value": (
        lambda x: x * 2 if (x > 0).any() else x,
        lambda: (pair(3),),
        "returns a value of a tensor to Python.*TwoTensor",
    ),
    "compared": (lambda x: torch.equal(x, x), lambda: (pair(3),), "returns a value of a tensor to Python.*TwoTensor"),
    "printed": (lambda x: print(x), lambda: (pair(3),), "TwoTensor"),
    "checkpoint": (
        lambda x: checkpoint(torch.sin, x, use_reentrant=False),
        lambda: (pair(3).requires_grad_(),),
        "leaves the checkpoint region that it is computed in.*TwoTensor",
    ),
    "written while autograd records": (
        lambda x, y: (y * 1).mul_(x),
        lambda: (pair(3).requires_grad_(), pair(3)),
        "while autograd records.*TwoTensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_class_and_line(name: str) -> None:
    program, arguments, message = REFUSED[name]
    LOG.clear()
    given = arguments()
    before = [{**vars(value)} for value in given]
    with pytest.raises(UnsupportedError, match=message) as caught:
        thunder.jit(program)(*given)
    assert "test_refused.py" in str(caught.value)
    for value, attributes in zip(given, before, strict=True):
        assert vars(value).keys() == attributes.keys()
        assert all(vars(value)[name] is held for name, held in attributes.items())


def test_the_gradient_of_a_result_is_of_its_class() -> None:
    x = pair(3).requires_grad_()
    result = thunder.jit(lambda x: x * 2)(x)
    with pytest.raises(RuntimeError, match="the gradient of a TwoTensor that a compiled program returned is a Tensor"):
        torch.autograd.grad(result, x, torch.ones(3))


def test_a_bias_that_is_no_wrapper_beside_a_weight_that_is() -> None:
    layer = nn.Linear(4, 3)
    layer.weight = nn.Parameter(TwoTensor(layer.weight.detach(), layer.weight.detach() * 2))
    with pytest.raises(UnsupportedError, match="gradient that linear returns is not of the class of the tensor"):
        thunder.jit(layer)(pair(2, 4))

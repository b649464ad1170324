"""What cannot be recorded of wrapper subclasses runs as eager PyTorch, with a reason that has class and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.masked import masked_tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from wrapper_classes import LOG, Factor, Logged, Unnamed, assert_same, numbers, pair

import thunder
from thunder_core.errors import UncacheableWarning, UnsupportedError


class Thing:
    """Defines no equality."""

    by = 2

    def __getitem__(self, key: str) -> int:
        return self.by

    def __repr__(self) -> str:
        return "a thing"


def _retained(x: Tensor) -> Tensor:
    y = x * 2
    y.retain_grad()
    return y


def masked(requires_grad: bool) -> Any:
    return masked_tensor(numbers(3), torch.tensor([True, False, True]), requires_grad=requires_grad)


def _backward_inside(x: Tensor) -> Tensor:
    (x * 2).sum().backward()
    return x


EAGER: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], str]] = {
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
    "checkpoint": (
        lambda x: checkpoint(torch.sin, x, use_reentrant=False),
        lambda: (pair(3).requires_grad_(),),
        "leaves the checkpoint region that it is computed in.*TwoTensor",
    ),
    "a masked tensor": (lambda x: x * 2, lambda: (masked(True),), "does not declare which.*MaskedTensor"),
    "a masked tensor made inside": (
        lambda x: masked_tensor(x * 2, x > 0),
        lambda: (numbers(3),),
        "does not declare which.*MaskedTensor",
    ),
    "written while autograd records": (
        lambda x, y: (y * 1).mul_(x),
        lambda: (pair(3).requires_grad_(), pair(3)),
        "while autograd records.*TwoTensor",
    ),
}


def outcome(program: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The result of a call, and the gradients of its arguments; or the exception, as text."""
    LOG.clear()
    try:
        result = program(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(result, Tensor) and result.requires_grad and arguments[0].grad is None:
        result.sum().backward()
    gradients = [value.grad for value in arguments if value.is_leaf]
    return result, gradients, list(LOG), arguments


@pytest.mark.parametrize("name", EAGER)
@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
@pytest.mark.filterwarnings("ignore:.* MaskedTensor:UserWarning")
@pytest.mark.slow
def test_runs_as_eager_with_class_and_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    program, arguments, message = EAGER[name]
    compiled = thunder.jit(program)
    for seed in range(3):
        torch.manual_seed(seed)
        expected, printed = outcome(program, arguments()), capsys.readouterr()
        torch.manual_seed(seed)
        assert_same(outcome(compiled, arguments()), expected)
        assert capsys.readouterr() == printed
    ((reason, count),) = thunder.explain(compiled).fallbacks.items()
    assert count == 3
    assert re.search(message, reason)
    assert "test_refused.py" in reason


def test_printing_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="TwoTensor") as caught:
        thunder.jit(lambda x: print(x))(pair(3))
    assert "test_refused.py" in str(caught.value)


def test_the_reason_is_said_once() -> None:
    compiled = thunder.jit(lambda x: x + 1)
    compiled(Unnamed(numbers(3)))
    with pytest.warns(UncacheableWarning, match=r"several calls: x does not declare which tensors it holds.*Unnamed"):
        compiled(Unnamed(numbers(3)))
    compiled(Unnamed(numbers(3)))


def test_the_gradient_of_a_result_is_of_its_class() -> None:
    x = pair(3).requires_grad_()
    result = thunder.jit(lambda x: x * 2)(x)
    with pytest.raises(RuntimeError, match="the gradient of a TwoTensor that a compiled program returned is a Tensor"):
        torch.autograd.grad(result, x, torch.ones(3))


@pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")
def test_a_bias_that_is_no_wrapper_beside_a_weight_that_is() -> None:
    def results(wrap: Callable[[Any], Any]) -> Any:
        layer = nn.Linear(4, 3)
        with torch.no_grad():
            layer.bias.fill_(1.0)
        layer.weight = nn.Parameter(pair(3, 4))
        program = wrap(layer)
        for _ in range(2):
            program(pair(2, 4)).sum().backward()
        return layer.weight.grad, layer.bias.grad

    assert_same(results(thunder.jit), results(lambda layer: layer))

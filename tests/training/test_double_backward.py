"""Second derivatives through compiled programs: equal to eager's, or an error of Thunder with advice."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from tests.subjects import SUBJECT, eager
from tests.training.steps import assert_same, detached, leaf
from thunder_core.errors import ThunderError


@contextlib.contextmanager
def refused_at_most() -> Iterator[None]:
    """Accepts an error of Thunder if it is about differentiation and has advice."""
    try:
        yield
    except ThunderError as error:
        if not error.advice or not re.search("derivative|differentia|backward", error.problem):
            raise AssertionError("not the error for a derivative that is not supported") from error


def assert_same_or_refused(make: Callable[[], Any], scenario: Callable[[Any], Any]) -> None:
    with refused_at_most():
        assert_same(make, scenario)


def cubic(x: torch.Tensor) -> torch.Tensor:
    return (x**3).sum() + x.sin().prod()


def with_matrix(x: torch.Tensor) -> torch.Tensor:
    return (x @ x.t()).tanh()


def several(x: torch.Tensor) -> Any:
    return x.sin(), x * 2, x.exp() * x


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y[0] = x[1] ** 2
    return y.mul_(x)


def linear(x: torch.Tensor) -> torch.Tensor:
    """Its second derivative is zero, or None."""
    return x * 2 + 1


FUNCTIONS = [cubic, with_matrix, several, in_place, linear]
MODULES: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)),
    "norms": lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.BatchNorm1d(8), nn.Linear(8, 2)),
    "conv": lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 3, 2), nn.SiLU(), nn.Flatten()),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Dropout(0.5), nn.Linear(8, 2)),
}


def total(outputs: Any) -> torch.Tensor:
    return sum(o.square().sum() for o in (outputs if isinstance(outputs, tuple) else (outputs,)))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_second_derivative(function: Callable[..., Any]) -> None:
    def scenario(program: Any) -> Any:
        seen = []
        for _ in range(2):
            x = leaf(3, 4)
            (first,) = torch.autograd.grad(total(program(x)), x, create_graph=True)
            (second,) = torch.autograd.grad((first * first.detach().cos()).sum(), x, allow_unused=True)
            seen.append(detached((first, second)))
        return seen

    assert_same_or_refused(lambda: function, scenario)


@pytest.mark.parametrize("name", MODULES)
def test_gradient_penalty(name: str) -> None:
    """The loss of a critic: the norm of its input gradient, differentiated with respect to the parameters."""

    def scenario(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        seen = []
        for _ in range(2):
            x = leaf(6, 4)
            output = model(x)
            (gradient,) = torch.autograd.grad(output.sum(), x, create_graph=True)
            loss = output.mean() + (gradient.norm(dim=1) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            seen.append((loss.detach(), x.grad))
        return seen

    assert_same_or_refused(MODULES[name], scenario)


STATISTICS: dict[str, Callable[[], nn.Module]] = {
    # without biases, whose gradients are only rounding errors
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.Tanh(), nn.BatchNorm1d(8)),
    "cumulative average": lambda: nn.Sequential(
        nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8, momentum=None), nn.Tanh()
    ),
    "without parameters": lambda: nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 2)),
    "instance norm": lambda: nn.Sequential(
        nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, affine=True, track_running_stats=True), nn.Flatten()
    ),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_second_derivatives_of_normalizations_that_have_updated_statistics(name: str) -> None:
    def scenario(model: Any) -> Any:
        seen = []
        for _ in range(3):
            x = leaf(6, 4)
            (gradient,) = torch.autograd.grad(model(x).pow(3).sum(), x, create_graph=True)
            gradient.square().sum().backward()
            seen.append([x.grad, *[value.grad for value in model.parameters()], *map(torch.clone, model.buffers())])
        return seen

    assert_same(STATISTICS[name], scenario)


def test_gradient_of_the_cotangent() -> None:
    """The derivative with respect to what is passed to backward, which is linear in it."""

    def scenario(program: Any) -> Any:
        x, cotangent = leaf(3, 4), leaf(3, 4)
        (first,) = torch.autograd.grad(program(x), x, cotangent, create_graph=True)
        return detached(torch.autograd.grad(first.sin().sum(), [cotangent, x]))

    assert_same_or_refused(lambda: lambda x: x.exp() * x, scenario)


def test_create_graph_alone_is_no_error() -> None:
    """A first derivative with ``create_graph`` has eager's values; what could be refused is the second."""

    def scenario(model: Any) -> Any:
        x = leaf(3, 4)
        (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return gradient.requires_grad, gradient.detach()

    assert_same(MODULES["mlp"], scenario)


def test_third_derivative() -> None:
    def scenario(program: Any) -> Any:
        x = leaf(3)
        value = program(x)
        for _ in range(3):
            (value,) = torch.autograd.grad(value.sum(), x, create_graph=True)
        return value.detach()

    assert_same_or_refused(lambda: lambda x: x.sin() * x**2, scenario)


@pytest.mark.parametrize("what", ["hessian", "jacobian", "hvp", "vhp", "jvp"])
def test_torch_autograd_functional(what: str) -> None:
    """These differentiate twice by the trick of two backward passes, except for jacobian."""

    def scenario(program: Any) -> Any:
        x = torch.randn(4)
        arguments = (x,) if what in ("hessian", "jacobian") else (x, torch.ones(4))
        return detached(getattr(torch.autograd.functional, what)(program, *arguments))

    check = assert_same if what == "jacobian" else assert_same_or_refused
    check(lambda: lambda x: (x.sin() * x).sum(), scenario)


def test_batched_cotangents() -> None:
    def scenario(program: Any) -> Any:
        x = leaf(4)
        return detached(torch.autograd.grad(program(x), x, torch.eye(4), is_grads_batched=True))

    assert_same_or_refused(lambda: lambda x: x.sin() * x.sum(), scenario)


CHECKED: dict[str, Callable[..., Any]] = {
    "elementwise": lambda x, y: x.sin() * y.exp() + x / (y.square() + 1),
    "matmul": lambda x, y: (x @ y.t()).tanh(),
    "reductions": lambda x, y: (x.logsumexp(0), (x * y).sum(1), y.var(0)),
    "views": lambda x, y: torch.cat([x[1:], y.flip(0)])[:, ::2] * x[0, 0],
    "layer_norm": lambda x, y: F.layer_norm(x, (4,), y[0], y[1]),
    "softmax": lambda x, y: F.cross_entropy(x, y.softmax(-1)),
    "sdpa": lambda x, y: F.scaled_dot_product_attention(x[None], y[None], (x * y)[None]),
    "in place": lambda x, y: (x * 2).mul_(y).add_(x),
    "norm": lambda x, y: torch.linalg.norm(x - y, dim=1),
    "solve": lambda x, y: torch.linalg.solve(x[:, :3] + 4 * torch.eye(3, dtype=torch.float64), y[:, :2]),
    "complex": lambda x, y: torch.fft.fft(torch.complex(x, y)).abs().square(),
}


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return leaf(3, 4, dtype=torch.float64), leaf(3, 4, dtype=torch.float64)


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.slow
def test_gradcheck(name: str) -> None:
    assert gradcheck(SUBJECT(CHECKED[name]), inputs(), check_undefined_grad=False)


@pytest.mark.parametrize("name", ["elementwise", "reductions"])
def test_gradcheck_with_undefined_cotangents(name: str) -> None:
    assert gradcheck(SUBJECT(CHECKED[name]), inputs(), check_undefined_grad=True, check_batched_grad=SUBJECT is eager)


@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.slow
def test_gradgradcheck(name: str) -> None:
    with refused_at_most():
        assert gradgradcheck(SUBJECT(CHECKED[name]), inputs(), check_undefined_grad=False)


def test_inputs_that_nobody_holds_any_more() -> None:
    """Those that backward needs anyway are there for the second derivative, too."""

    def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x.sin() * w).sum()

    def scenario(program: Any) -> Any:
        x, w = leaf(3), leaf(3)
        (gradient,) = torch.autograd.grad(program(x * 1.0, w * 1.0), x, create_graph=True)
        return detached(torch.autograd.grad(gradient.pow(2).sum(), (x, w)))

    assert_same(lambda: product, scenario)


def test_second_derivative_of_a_freed_graph() -> None:
    x = leaf(3)
    result = SUBJECT(cubic)(x)
    result.backward()
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(result, x, create_graph=True)


def test_second_derivative_after_a_write() -> None:
    x = leaf(3)
    result = SUBJECT(cubic)(x)
    with torch.no_grad():
        x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(result, x, create_graph=True)


def test_an_input_of_inference_mode() -> None:
    with torch.inference_mode():
        constant = torch.ones(3)

    def scenario(program: Any) -> Any:
        x = leaf(3)
        program(x, constant).sum().backward()
        return x.grad

    assert_same(lambda: torch.add, scenario)

"""Functions that read values of tensors under transformations of `torch.func`, inside and around compiled programs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

import thunder

POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, -1.5]), torch.tensor([-1.0, 0.5, -2.0])
CALLS = (POSITIVE, NEGATIVE, POSITIVE * 3, NEGATIVE)


def branch(x: torch.Tensor) -> torch.Tensor:
    return (x**2 if x.sum() > 0 else x**3).sum()


def branch_on_detached(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum() if x.detach().max() > 1 else (x**3).sum()


def number(x: torch.Tensor) -> torch.Tensor:
    return (x * x.sum().item()).sum() + float(x[0]) * x[1]


def loop(x: torch.Tensor) -> torch.Tensor:
    count = 0
    while (x**2).sum() < 100:
        x, count = x * 2, count + 1
    return x.sum() * count


def index(x: torch.Tensor) -> torch.Tensor:
    return x[int(x.argmax())] ** 2


FUNCTIONS = [branch, branch_on_detached, number, loop, index]
TRANSFORMED: dict[str, Callable[[Any], Callable[[torch.Tensor], Any]]] = {
    "grad": grad,
    "grad_and_value": grad_and_value,
    "grad of grad": lambda f: grad(lambda x: grad(f)(x).sum()),
    "jvp": lambda f: lambda x: jvp(f, (x,), (torch.ones_like(x),)),
    "vjp": lambda f: lambda x: vjp(f, x)[1](torch.ones(())),
    "jacrev": jacrev,
    "value first": lambda f: lambda x: grad(lambda y: f(y) if f(y) > 0 else -f(y))(x),
}


def outcome(program: Callable[..., Any], x: torch.Tensor) -> Any:
    try:
        return program(x)
    except RuntimeError as error:
        return type(error), str(error).partition("\n")[0]


def assert_as_eager(compiled: Callable[..., Any], program: Callable[..., Any]) -> None:
    for x in CALLS:
        result, expected = outcome(compiled, x), outcome(program, x)
        if isinstance(expected, tuple) and isinstance(expected[0], type):
            assert result == expected
        else:
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.battery
def test_inside(function: Callable[..., Any], name: str) -> None:
    """An error about ``_local_scalar_dense`` was raised."""
    transform = TRANSFORMED[name]
    assert_as_eager(thunder.jit(lambda x: transform(function)(x)), transform(function))


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
@pytest.mark.battery
def test_around(function: Callable[..., Any], name: str) -> None:
    transform = TRANSFORMED[name]
    assert_as_eager(transform(thunder.jit(function)), transform(function))


@pytest.mark.parametrize("transform", [jacfwd, hessian, vmap])
def test_batched_values(transform: Callable[..., Any]) -> None:
    """PyTorch refuses to read the value of a batched tensor."""
    program = transform(branch)
    assert_as_eager(thunder.jit(lambda x: program(x)), program)


def test_branch_on_a_gradient() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        gradient = grad(branch)(x)
        return gradient * 2 if gradient.sum() > 4 else x

    assert_as_eager(thunder.jit(program), program)


def test_writes_before_a_branch() -> None:
    """The program so far runs to read the value; its writes are done once."""

    def program(x: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        total += x.sum()
        return grad(lambda y: (y * total).sum() if (y * total).sum() > 0 else y.sum())(x)

    compiled, totals = thunder.jit(program), [torch.zeros(()), torch.zeros(())]
    for x in CALLS:
        torch.testing.assert_close(compiled(x, totals[0]), program(x, totals[1]), rtol=0, atol=0)
        assert torch.equal(*totals)


def test_requires_grad_around_a_transformation() -> None:
    """Gradients of autograd flow through the transformed function."""
    compiled = thunder.jit(lambda x: grad(branch)(x))
    for x in CALLS:
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for program, leaf in zip((compiled, grad(branch)), leaves, strict=True):
            program(leaf).sum().backward()
        assert torch.equal(leaves[0].grad, leaves[1].grad)

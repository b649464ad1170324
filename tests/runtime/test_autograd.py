"""Autograd in and around compiled programs: gradients equal eager's, regions keep their meaning."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (3, 4), requires_grad=True)


def t() -> torch.Tensor:
    return torch.randn(3, 4)


class Doubled(torch.autograd.Function):
    """A gradient that autograd would not find by itself."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * scale

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * 100 * x.sign() * ctx.scale, None


class SetupContext(torch.autograd.Function):
    @staticmethod
    def forward(x: torch.Tensor) -> Any:
        return x.exp(), x.shape[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0] * 7


def no_grad_region(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
    return y, z, x * y


@torch.no_grad()
def _decorated(x: torch.Tensor) -> torch.Tensor:
    return x * 5


def no_grad_decorator(x: torch.Tensor) -> Any:
    return _decorated(x) * x


def set_grad_enabled(x: torch.Tensor) -> Any:
    with torch.set_grad_enabled(False):
        y = x * 2
    return x * y, torch.is_grad_enabled()


def inference_region(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = (x * 2).sum()
    return x * float(x.shape[0]), y.shape


def detaches(x: torch.Tensor) -> Any:
    return x * x.detach(), x.detach(), (x * 2).detach_()


def autograd_function(x: torch.Tensor) -> torch.Tensor:
    return Doubled.apply(x.sin(), 2.0) + 1


def autograd_function_setup(x: torch.Tensor) -> Any:
    return SetupContext.apply(x)


def checkpoints(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda y: y.sin().exp() * 2, x, use_reentrant=False).sum(0)


def in_place_under_grad(x: torch.Tensor) -> Any:
    y = x * 2
    y.mul_(3)
    y[0] = x[1].sin()
    y[:, 1:].add_(x[:, :-1])
    return y, y.exp_()


def requires_grad_inside(x: torch.Tensor) -> Any:
    y = x.detach().requires_grad_()
    return y * 2 if y.requires_grad else x


def grad_inside(x: torch.Tensor) -> Any:
    y = (x.sin() * x).sum()
    (gradient,) = torch.autograd.grad(y, x, create_graph=True)
    return gradient * x


def backward_hook(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    y.register_hook(lambda gradient: gradient * 10)
    return y * 2


def autocast_region(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y, z, x @ x.t(), (y + z)


def partly_differentiable(x: torch.Tensor) -> Any:
    return x.argmax(), x.max(1), x > 0, x.round(), x.detach() * 2, torch.zeros(3), (x > 0).float() * x


PROGRAMS = [
    no_grad_region, no_grad_decorator, set_grad_enabled, inference_region, detaches, autograd_function,
    autograd_function_setup, checkpoints, in_place_under_grad, requires_grad_inside, grad_inside, backward_hook,
    autocast_region, partly_differentiable,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[..., Any], check_gradients: Callable[..., None]) -> None:
    check_gradients(program, lambda: (leaf(),))


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p is not grad_inside], ids=lambda p: p.__name__)
def test_program_without_gradients(program: Callable[..., Any], check: Callable[..., None]) -> None:
    with torch.no_grad():
        check(program, lambda: (leaf(),))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast(dtype: torch.dtype, check_gradients: Callable[..., None]) -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    with torch.autocast("cpu", dtype=dtype):
        check_gradients(module, lambda: (t(),))


def test_under_inference_mode(check: Callable[..., None]) -> None:
    with torch.inference_mode():
        check(nn.Linear(4, 4), lambda: (t(),))


def test_calls_that_look_at_values_under_inference_mode(check: Callable[..., None]) -> None:
    """They are tried on samples, whose versions are compared; inference tensors have none."""
    with torch.inference_mode():
        check(lambda x: torch.cov(x) + 1, lambda: (t(),))


def test_module_checkpoint(check_gradients: Callable[..., None]) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + checkpoint(self.layers, x, use_reentrant=False)

    check_gradients(nn.Sequential(Block(), Block()), lambda: (t(),))


def test_second_derivative(jit: Callable[..., Any]) -> None:
    x = leaf()
    for function in (lambda y: (y.sin() * y).sum(), jit(lambda y: (y.sin() * y).sum())):
        (first,) = torch.autograd.grad(function(x), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 2 * x.cos() - x * x.sin())


def test_training_steps(jit: Callable[..., Any]) -> None:
    """Three steps of an optimizer through the compiled module leave the parameters that eager leaves."""
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1))
    twin = copy.deepcopy(eager)
    compiled = jit(twin)
    for model in (eager, compiled):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        torch.manual_seed(1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).square().mean().backward()
            optimizer.step()
    for expected, actual in zip(eager.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(expected, actual)


def test_requires_grad_of_input_is_guarded(check: Callable[..., None], jit: Callable[..., Any]) -> None:
    compiled = jit(lambda x: x * 2)
    assert not compiled(t()).requires_grad
    assert compiled(leaf()).requires_grad
    with torch.no_grad():
        assert not compiled(leaf()).requires_grad
    assert not compiled(t()).requires_grad


class SavesBoth(torch.autograd.Function):
    """Its backward distinguishes the positions of an argument that is passed twice."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y)
        return x.sin(), y * 3

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        saved = zip(cotangents, ctx.saved_tensors, strict=True)
        return tuple([value * 0 + 5 if cotangent is None else cotangent * value for cotangent, value in saved])


def test_one_tensor_for_two_parameters(jit: Callable[..., Any]) -> None:
    """Here PyTorch records the call while the program runs, as it writes what another call gave."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return SavesBoth.apply(x, y)[0].mul_(2)

    compiled = jit(program)
    one, other = (torch.randn(2, 3, requires_grad=True) for _ in range(2))
    for x, y in ((one, other), (one, one), (one.detach(), other), (other, other)):
        found = []
        for run in (compiled, program):
            run(x, y).sum().backward()
            found.append([tensor.grad for tensor in (one, other)])
            one.grad = other.grad = None
        torch.testing.assert_close(*found)

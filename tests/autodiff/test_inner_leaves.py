"""``requires_grad_`` of values of the program: as in eager, and differentiated by Thunder if nobody sees the leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import NoTraceError, UnsupportedError

FROZEN, TRAINED = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4)


def before_a_checkpoint(x: Tensor) -> Any:
    y = FROZEN(x)
    y.requires_grad_(True)
    return TRAINED(checkpoint(lambda y: FROZEN(y).sin(), y, use_reentrant=False))


def in_a_checkpoint(x: Tensor) -> Any:
    """The first region makes a leaf, which the second one reads."""

    def region(x: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        if bias is None:
            bias = torch.zeros(2, 4)
            bias.requires_grad = True
        return TRAINED(x + bias).sin(), bias

    y, bias = checkpoint(region, x, None, use_reentrant=False)
    return checkpoint(region, y, bias * 2, use_reentrant=False)[0]


def returned_from_a_checkpoint(x: Tensor) -> Any:
    y, leaf = checkpoint(lambda x: (TRAINED(x), x.cos().requires_grad_()), x, use_reentrant=False)
    return y * leaf, leaf


def by_assignment(x: Tensor) -> Any:
    y = torch.zeros(2, 4)
    y.requires_grad = True
    return TRAINED(x) * y.exp() + y


def of_what_is_detached(x: Tensor) -> Any:
    y = x.sin().detach().requires_grad_()
    return TRAINED(y) * y


def of_what_is_detached_from_a_graph(x: Tensor) -> Any:
    y = TRAINED(x)
    return y.detach().requires_grad_().exp() * y


def of_what_requires_grad(x: Tensor) -> Any:
    return TRAINED(x).requires_grad_().sin()


def of_two(x: Tensor) -> Any:
    y, z = x.sin().requires_grad_(), x.cos().requires_grad_()
    y = y * z
    with torch.no_grad():
        z = y * 2
    return TRAINED(y), y.requires_grad, z.requires_grad


def of_what_is_computed_and_written(x: Tensor) -> Any:
    y = x.sin().requires_grad_() * 2
    y.add_(1).view(-1).mul_(3)
    return TRAINED(y)


def of_all_that_requires_grad(x: Tensor) -> Any:
    return FROZEN(x.sin().requires_grad_())


def returned(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    return TRAINED(y), y


def a_part_returned(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    return TRAINED(y), y[0]


class Again(torch.autograd.Function):
    """Runs a module again in backward, which autograd calls if an input requires grad."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return TRAINED(x)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            y = TRAINED(x)
        torch.autograd.backward(y, cotangent)
        return x.grad


class Asks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x * y if y.requires_grad else x * y * 2

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return cotangent if ctx.needs_input_grad[1] else cotangent * 3, None


def read_by_a_function(x: Tensor) -> Any:
    return Again.apply((x * 2).requires_grad_()) * TRAINED(x)


def asked_by_a_function(x: Tensor) -> Any:
    return Asks.apply(TRAINED(x), (x.sin().requires_grad_() * 2).cos())


def asked_through_a_view(x: Tensor) -> Any:
    memory = torch.zeros(2, 4)
    view = memory[0]
    memory.add_(x.sin().requires_grad_())
    return Asks.apply(TRAINED(x)[0], view)


def asked_in_a_checkpoint(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    return checkpoint(lambda x, y: Asks.apply(TRAINED(x), y), x, y * 2, use_reentrant=False)


NORM = nn.Sequential(nn.BatchNorm1d(4), nn.Dropout(0.4)).requires_grad_(False)


def frozen_statistics(x: Tensor) -> Any:
    """Backward runs the region again, and updates the statistics."""
    y = checkpoint(NORM, x.sin().requires_grad_(), use_reentrant=False)
    return TRAINED(y), NORM[0].running_mean


def random_numbers(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    y = checkpoint(lambda y: y * torch.rand(4), y, use_reentrant=False, preserve_rng_state=False)
    return TRAINED(y)


def sparse(x: Tensor) -> Any:
    return torch.sparse.mm(x.to_sparse().requires_grad_(), TRAINED.weight)


def written(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    with torch.no_grad():
        y.mul_(2)
    return TRAINED(y) * y


def of_an_input(x: Tensor) -> Any:
    return TRAINED(x.requires_grad_())


def with_a_hook(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    y.register_hook(lambda gradient: gradient * 2)
    return TRAINED(y)


def differentiated_inside(x: Tensor) -> Any:
    y = x.sin().requires_grad_()
    (gradient,) = torch.autograd.grad((y * y).sum(), y)
    return TRAINED(gradient)


DIFFERENTIATED = (
    *(before_a_checkpoint, by_assignment, of_what_is_detached, of_what_requires_grad, of_two),
    *(of_what_is_computed_and_written, of_what_is_detached_from_a_graph, in_a_checkpoint),
)
AS_RECORDED = (
    *(of_all_that_requires_grad, returned, a_part_returned, written, of_an_input, with_a_hook),
    *(differentiated_inside, returned_from_a_checkpoint, read_by_a_function, asked_by_a_function),
    *(asked_in_a_checkpoint, asked_through_a_view, sparse, frozen_statistics, random_numbers),
)


def observed(function: Callable[[Tensor], Any]) -> list[Any]:
    TRAINED.zero_grad()
    NORM[0].reset_running_stats()
    torch.manual_seed(0)
    x = torch.randn(2, 4)
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    tensors = [result for result in results if isinstance(result, Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        sum(tensor.sum() for tensor in tensors if tensor.requires_grad).backward()
    drawn = torch.rand(2)
    leaves = [tensor.grad for tensor in tensors if tensor.is_leaf]
    seen = [tensor.detach().clone() for tensor in (x, *tensors)]
    flags = [(tensor.requires_grad, tensor.is_leaf) for tensor in (x, *tensors)]
    return [*seen, *leaves, x.grad, TRAINED.weight.grad, TRAINED.bias.grad, drawn, flags, results[len(tensors) :]]


def test_as_in_eager() -> None:
    for program in (*DIFFERENTIATED, *AS_RECORDED):
        expected = observed(program)
        compiled = thunder.jit(program, executors=[])
        for _ in range(2):
            torch.testing.assert_close(
                observed(compiled), expected, msg=lambda text, p=program: f"{p.__name__}: {text}"
            )
        try:
            found = bool(thunder.last_backward_traces(compiled)[-1].symbols)
        except NoTraceError:
            found = False
        assert found == (program in DIFFERENTIATED), program.__name__


def test_second_derivatives_are_refused() -> None:
    compiled = thunder.jit(of_what_is_detached, executors=[])
    result = compiled(torch.randn(2, 4)).sum()
    with pytest.raises(UnsupportedError, match="requires_grad_ of its own value"):
        torch.autograd.grad(result, TRAINED.weight, create_graph=True)

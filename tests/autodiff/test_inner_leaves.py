"""``requires_grad_`` of values of the program: as in eager, and differentiated by Thunder if nobody sees the leaf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import NoTraceError

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
    *(differentiated_inside, returned_from_a_checkpoint),
)


def observed(function: Callable[[Tensor], Any]) -> list[Any]:
    TRAINED.zero_grad()
    torch.manual_seed(0)
    x = torch.randn(2, 4)
    results = function(x)
    results = results if isinstance(results, tuple) else (results,)
    tensors = [result for result in results if isinstance(result, Tensor)]
    if any(tensor.requires_grad for tensor in tensors):
        sum(tensor.sum() for tensor in tensors if tensor.requires_grad).backward()
    leaves = [tensor.grad for tensor in tensors if tensor.is_leaf]
    seen = [tensor.detach().clone() for tensor in (x, *tensors)]
    flags = [(tensor.requires_grad, tensor.is_leaf) for tensor in (x, *tensors)]
    return [*seen, *leaves, x.grad, TRAINED.weight.grad, TRAINED.bias.grad, flags, results[len(tensors) :]]


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

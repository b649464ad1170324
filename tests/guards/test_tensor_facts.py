"""Metadata that programs read of tensors, also of those with which they do not compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder


def check(function: Callable[..., Any], *calls: Any) -> Any:
    """One compiled function gives, for each of these arguments, what eager gives."""
    compiled = thunder.jit(function, executors=[])
    for arguments in calls:
        torch.testing.assert_close(compiled(*arguments), function(*arguments))
    return compiled


leaf = torch.ones(2, requires_grad=True)
with_grad = torch.ones(2, requires_grad=True)
with_grad.grad = torch.full((2,), 5.0)


@pytest.mark.parametrize(
    ("question", "other"),
    [
        (lambda t: t.dtype == torch.float32, torch.ones(2).double()),
        (lambda t: t.shape[0] == 2, torch.ones(3)),
        (lambda t: t.requires_grad, leaf),
        (lambda t: t.is_contiguous(), torch.ones(4)[::2]),
        (lambda t: t.storage_offset(), torch.ones(3)[1:]),
        (lambda t: t.data_ptr() % 16, torch.ones(3)[1:]),
        (lambda t: t.untyped_storage().nbytes() == 8, torch.ones(3)[1:]),
        (lambda t: torch.result_type(t, 1) == torch.float32, torch.ones(2, dtype=torch.int64)),
        (lambda t: t._is_view(), torch.ones(3)[1:]),
    ],
    ids=["dtype", "shape", "requires_grad", "contiguous", "offset", "address", "storage", "type of result", "view"],
)
def test_arguments_that_are_only_asked(question: Callable[[Tensor], Any], other: Tensor) -> None:
    check(lambda x, t: x * 2 if question(t) else x * 3, *[(torch.ones(2), t) for t in (torch.ones(2), other)])


@pytest.mark.parametrize(
    ("question", "one", "other"),
    [
        (lambda t: t.is_leaf, leaf, leaf * 1),
        (lambda t: t.grad_fn is None, leaf, leaf * 1),
        (lambda t: t.grad is None, leaf, with_grad),
        (lambda t: t.output_nr, (leaf * 1).chunk(2)[0], (leaf * 1).chunk(2)[1]),
        (lambda t: t.storage_offset(), torch.ones(2), torch.ones(3)[1:]),
    ],
    ids=["leaf", "graph", "gradient", "output", "offset"],
)
def test_inputs_of_equal_metadata(question: Callable[[Tensor], Any], one: Tensor, other: Tensor) -> None:
    check(lambda t: t * 2 if question(t) else t * 3, (one,), (other,), (one,))


def test_parameters_and_buffers_that_are_only_asked() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("table", torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return (x * 2 if self.weight.requires_grad else x * 3).to(self.table.dtype)

    net = Net()
    compiled = thunder.jit(net, executors=[])
    for change in (lambda: None, lambda: net.weight.requires_grad_(False), lambda: net.table.data.double()):
        change()
        torch.testing.assert_close(compiled(torch.ones(2)), net(torch.ones(2)))
    net.table = net.table.double()
    assert compiled(torch.ones(2)).dtype is torch.float64
    assert "module.table: dtype" in thunder.explain(compiled).miss_reasons[-1]


def test_whether_two_arguments_are_the_same_memory() -> None:
    one, other = torch.ones(2), torch.ones(2)
    check(lambda x, t: x * 2 if x.is_set_to(t) else x * 3, (one, one), (one, other), (one, one.detach()))


def test_what_is_not_asked_does_not_count() -> None:
    compiled = check(
        lambda x, t: x * 2, (torch.ones(2), torch.ones(2)), (torch.ones(2), leaf), (torch.ones(2), leaf[1:])
    )
    assert thunder.cache_misses(compiled) == 1


def test_a_step_of_an_optimizer() -> None:
    def step(parameters: list[Tensor]) -> None:
        with torch.no_grad():
            for parameter in parameters:
                if parameter.grad is not None:
                    parameter.sub_(parameter.grad, alpha=0.5)

    ours, theirs = ([torch.ones(2, requires_grad=True) for _ in range(2)] for _ in range(2))
    compiled = thunder.jit(step, executors=[])
    for used in (0, 2, 2, 1):
        for parameters, run in ((ours, compiled), (theirs, step)):
            for parameter in parameters:
                parameter.grad = None
            sum(
                (parameter.sin().sum() for parameter in parameters[:used]), torch.zeros(())
            ).backward() if used else None
            run(parameters)
        torch.testing.assert_close(ours, theirs)
    assert thunder.cache_misses(compiled) == 3  # for none, two and one gradient


def test_a_gradient_that_the_program_replaces() -> None:
    def program(t: Tensor) -> Tensor:
        before = t.grad
        t.grad = None
        return t * 2 if t.grad is None and before is not None else t * 3

    given = torch.ones(2, requires_grad=True)
    given.grad = torch.ones(2)
    torch.testing.assert_close(thunder.jit(program, executors=[])(given), given * 2)
    assert given.grad is None

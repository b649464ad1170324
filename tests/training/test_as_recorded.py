"""Programs that no functional trace expresses: their lines run one by one, so that all is as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from tests.training.steps import CLOSE, detached, leaf, loss_of
from thunder_testing.difference import differences
from thunder_testing.snapshot import snapshot

SUBJECTS: dict[str, Callable[[Any], Any]] = {
    "reference": lambda program: thunder.jit(program, executors=[]),
    "default": thunder.jit,
}


def same(program: Callable[..., Any], make: Callable[[], tuple[torch.Tensor, ...]], calls: int = 2) -> None:
    """Values, gradients of a backward outside of the program, ``.grad`` and the arguments afterwards, or the error."""
    expected = _observe(program, make, calls)
    for name, subject in SUBJECTS.items():
        found = differences(expected, _observe(subject(program), make, calls), CLOSE)
        assert not found, f"{name}:\n  " + "\n  ".join(found[:20])


def _observe(function: Callable[..., Any], make: Callable[[], tuple[torch.Tensor, ...]], calls: int) -> Any:
    seen: list[Any] = []
    for call in range(calls):
        torch.manual_seed(call)
        arguments = make()
        try:
            result = function(*arguments)
            loss = loss_of(result)
            if loss.requires_grad:
                loss.backward()
        except RuntimeError as error:
            seen.append(str(error))
            continue
        seen += [detached(result), detached(arguments), [detached(argument.grad) for argument in arguments]]
        seen.append([(argument.requires_grad, argument.is_leaf) for argument in arguments])
    return snapshot(seen=seen)


def backward_inside(x: torch.Tensor) -> torch.Tensor:
    loss = (x * x).sum()
    loss.backward()
    return loss.detach()


def step_inside(x: torch.Tensor) -> None:
    (x.sin() * x).sum().backward()
    with torch.no_grad():
        x.sub_(x.grad, alpha=0.1)


def nothing_returned(x: torch.Tensor) -> None:
    torch.autograd.backward([x.sin().sum(), x.square().sum()])


def gradient_written(x: torch.Tensor) -> torch.Tensor:
    y = x.detach() - 0.5
    x.grad = abs(y)
    x.grad.add_(y)
    return x.grad * 2


def gradient_set_twice(x: torch.Tensor) -> Any:
    first, second = x.detach() + 1, x.detach() * 2
    x.grad = first
    seen = x.grad + 1
    x.grad = second
    x.grad.zero_()
    return first, second, seen, x.grad + 1


def gradient_accumulated(x: torch.Tensor) -> Any:
    x.sin().sum().backward()
    before = x.grad.clone()
    x.cos().sum().backward()
    x.grad.mul_(2)
    return before, x.grad + 0


def gradient_removed(x: torch.Tensor) -> Any:
    x.sin().sum().backward()
    seen = x.grad
    x.grad = None
    x.square().sum().backward()
    return seen, x.grad is None


def gradient_retained(x: torch.Tensor) -> Any:
    y = x.sin()
    y.retain_grad()
    (y * x).sum().backward()
    return y.grad * 2, y.detach()


def data_after_saving(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    x.data.mul_(2)
    return y


def data_of_a_value(x: torch.Tensor) -> Any:
    z = x * 1
    y = z.sin()
    z.data[0].mul_(2)
    return y, z


def data_of_a_result(x: torch.Tensor) -> Any:
    y = x.exp()
    y.data.zero_()
    return y


def data_of_data(x: torch.Tensor) -> Any:
    z = x * 1
    hidden = z.data.view(-1)
    y = z * z
    hidden.detach().add_(1)
    return y


def data_before_saving(x: torch.Tensor) -> Any:
    x.data.clamp_(min=0.1)
    return x.sin()


def data_that_is_not_saved(x: torch.Tensor) -> Any:
    y = x + 1
    x.data.mul_(3)
    return y * 2


def data_in_a_checkpoint(x: torch.Tensor) -> Any:
    def region(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        z = y * y
        y.data.mul_(2)
        return z.exp()

    return checkpoint(region, x, use_reentrant=False)


def gradient_through_equal_calls(x: torch.Tensor) -> Any:
    y, z = x.sin(), x.sin()
    gradient = torch.autograd.grad(z.sum(), x, allow_unused=True, retain_graph=True)[0]
    total = x.exp().sin() * x.exp().sin()
    total.sum().backward()
    return y.detach() if gradient is None else gradient, None if x.grad is None else x.grad * 2


def hook_on_a_written_input(x: torch.Tensor) -> Any:
    x.data.mul_(1.5)
    y = torch.where(x > 0, x, x * 2)
    x.register_hook(lambda gradient: gradient * 2)
    return y, x


PROGRAMS = [
    hook_on_a_written_input,
    gradient_through_equal_calls,
    backward_inside,
    step_inside,
    nothing_returned,
    gradient_written,
    gradient_set_twice,
    gradient_accumulated,
    gradient_removed,
    gradient_retained,
    data_after_saving,
    data_of_a_value,
    data_of_a_result,
    data_of_data,
    data_before_saving,
    data_that_is_not_saved,
    data_in_a_checkpoint,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.slow
def test_program(program: Callable[..., Any]) -> None:
    same(program, lambda: (leaf(3, 4),))


@pytest.mark.parametrize("program", [gradient_written, gradient_set_twice], ids=lambda program: program.__name__)
def test_gradient_of_what_requires_none(program: Callable[..., Any]) -> None:
    same(program, lambda: (torch.randn(3, 4),))


def test_only_what_autograd_saved_is_left_to_it() -> None:
    for program, expected in ((data_after_saving, True), (data_before_saving, False), (data_that_is_not_saved, False)):
        compiled = thunder.jit(program)
        compiled(leaf(3, 4))
        assert (thunder.explain(compiled).entries[0].as_recorded is not None) is expected


def autocast_inside(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    (y.float() + z).sum().backward()
    return y.detach() * 2, z @ x


def autocast_around(x: torch.Tensor) -> Any:
    y = x @ x.t()
    y.sum().backward()
    return x @ x.t(), x.sin()


def test_autocast() -> None:
    same(autocast_inside, lambda: (leaf(4, 4),))
    with torch.autocast("cpu", torch.bfloat16):
        same(autocast_around, lambda: (leaf(4, 4),))

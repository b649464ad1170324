"""Checkpoint regions that write tensors from outside: backward runs them again, and writes again, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import thunder
from tests.training.steps import assert_same, check, leaf, step


class Normalized(nn.Module):
    """BatchNorm counts batches in place: eager counts each recomputation, too."""

    def __init__(self, forward: Callable[..., Any], use_reentrant: bool) -> None:
        super().__init__()
        self.linear, self.norm, self.second = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.BatchNorm1d(4)
        self.program, self.use_reentrant = forward, use_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.program(self, x)

    def region(self, function: Callable[..., Any], x: torch.Tensor) -> torch.Tensor:
        return checkpoint(function, x, use_reentrant=self.use_reentrant)

    def body(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)).relu()


def once(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    return model.region(model.body, x)


def twice_and_outside(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    y = model.region(model.body, model.norm(model.region(model.body, x)))
    return y + model.norm.running_mean


def nested(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    def outer(y: torch.Tensor) -> torch.Tensor:
        return model.region(model.body, model.second(y.sin())).sin()

    return model.region(outer, x)


def parts_of_buffers(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    def body(y: torch.Tensor) -> torch.Tensor:
        model.second.running_var[1:3].mul_(0.5)
        return model.body(y) * model.second.running_var

    return model.region(body, x.sin())


def view_from_outside(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    part = model.second.running_var[1:]

    def body(y: torch.Tensor) -> torch.Tensor:
        model.second.running_var.mul_(0.5)
        return model.body(y) * part.sum()

    return model.region(body, model.region(body, x.sin()))


def views_from_outside(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    """None of them is the buffer itself, and one was written before."""
    variance = model.second.running_var
    first, last = variance[:3], variance.data[1:]
    first.add_(1)
    inner = last[1:]

    def body(y: torch.Tensor) -> torch.Tensor:
        inner.mul_(0.5)
        return model.body(y) * first.sum() + last[0]

    return model.region(body, x.sin()) * inner.sum()


def view_in_nested_regions(model: Normalized, x: torch.Tensor) -> torch.Tensor:
    part = model.second.running_var[1:]

    def inner(y: torch.Tensor) -> torch.Tensor:
        model.second.running_var.mul_(1.5)
        return (y * part.sum()).sin()

    def outer(y: torch.Tensor) -> torch.Tensor:
        part.add_(1)
        return model.region(inner, model.body(y) * part.sum()).cos()

    return model.region(outer, x)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
@pytest.mark.parametrize("use_reentrant", [False, True], ids=["saved tensors", "reentrant"])
@pytest.mark.parametrize(
    ("program", "autocast"),
    [
        (once, False),
        (once, True),
        (twice_and_outside, False),
        (nested, False),
        (nested, True),
        (parts_of_buffers, False),
        (view_from_outside, False),
        (views_from_outside, False),
        (view_in_nested_regions, False),
    ],
    ids=lambda value: getattr(value, "__name__", "autocast" if value else "float32"),
)
@pytest.mark.slow
def test_buffers_are_updated_again(program: Callable[..., Any], autocast: bool, use_reentrant: bool) -> None:
    def scenario(model: Any) -> Any:
        seen = []
        for retain in (False, True):
            x = leaf(5, 4)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                y = model(x)
            counted = model.norm.num_batches_tracked.clone(), model.norm.running_mean.clone()
            for again in [True, False][not retain :]:
                y.float().square().sum().backward(retain_graph=again)
            state = model.second.running_var.clone(), model.norm.running_mean.requires_grad
            seen.append((y.detach(), counted, x.grad, *state))
        with torch.no_grad():
            seen.append(model(leaf(5, 4)))
        return seen

    assert_same(lambda: Normalized(program, use_reentrant), scenario)


def test_tensors_with_gradients() -> None:
    def program(model: Normalized, x: torch.Tensor) -> torch.Tensor:
        h = x * 2

        def body(y: torch.Tensor) -> torch.Tensor:
            h.mul_(y.sigmoid())
            return model.body(y) * h

        return model.region(body, x) + h

    assert_same(lambda: Normalized(program, False), lambda model: [(step(model, x), x.grad) for x in (leaf(5, 4),) * 2])


def test_view_with_gradients() -> None:
    """A view of a value, and one without gradients, of which the region writes the first."""

    def program(model: Normalized, x: torch.Tensor) -> torch.Tensor:
        h = x * 2
        first, detached = h[0], h.detach()[1:]
        first.add_(1)

        def body(y: torch.Tensor) -> torch.Tensor:
            h.mul_(y.sigmoid())
            return model.body(y) * first + detached.sum()

        return model.region(body, x) + first

    assert_same(lambda: Normalized(program, False), lambda model: [(step(model, x), x.grad) for x in (leaf(5, 4),) * 2])


@pytest.mark.parametrize("stop", [True, False])
def test_where_recomputation_stops(stop: bool) -> None:
    def program(model: Normalized, x: torch.Tensor) -> torch.Tensor:
        def body(y: torch.Tensor) -> torch.Tensor:
            z = model.linear(y).sin()
            model.norm.running_mean.add_(1)  # nothing that backward needs comes after it
            return z

        with set_checkpoint_early_stop(stop):
            return model.region(body, x)

    assert_same(lambda: Normalized(program, False), lambda model: [step(model, leaf(5, 4)) for _ in range(2)])


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad:UserWarning")
def test_reentrant_region_of_constants_has_no_gradients() -> None:
    assert_same(lambda: Normalized(once, True), lambda model: [model(torch.randn(5, 4)).requires_grad])


def test_values_written_in_an_inner_region_stay_there() -> None:
    """A tensor that a nested region creates and writes keeps its name, at any depth."""

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = []

        def inner(y: torch.Tensor) -> torch.Tensor:
            z = y.sum(-1)
            z[z > 0.5] = 1.0
            kept.append(z)
            return z

        def outer(y: torch.Tensor) -> torch.Tensor:
            return checkpoint(inner, y.clone(), use_reentrant=False)

        return checkpoint(outer, x * 2, use_reentrant=False), kept.pop()

    x, y = (torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).requires_grad_() for _ in range(2))
    expected, actual = program(x), thunder.jit(program, executors=[])(y)
    torch.testing.assert_close(actual, expected)
    gradients = [torch.autograd.grad(result.square().sum(), leaf) for (result, _), leaf in ((expected, x), (actual, y))]
    torch.testing.assert_close(gradients[1], gradients[0])


def several_views(x: torch.Tensor, b: torch.Tensor) -> Any:
    def body(y: torch.Tensor) -> Any:
        h = y.sin()
        return h, h[0], h.detach()

    whole, row, detached = checkpoint(body, x, use_reentrant=False)
    row.mul_(2)
    return whole, row, detached


def views_of_what_nobody_holds(x: torch.Tensor, b: torch.Tensor) -> Any:
    def body(y: torch.Tensor) -> Any:
        h = y.sin()
        row = h[0]
        h.mul_(2)
        return row, row[1:], h.unbind(1)[1]

    row, part, column = checkpoint(body, x, use_reentrant=False)
    part.mul_(3)
    return row * column.sum(), part


def view_of_what_was_written(x: torch.Tensor, b: torch.Tensor) -> Any:
    part = b[1:]

    def body(y: torch.Tensor) -> Any:
        b.mul_(2)
        part.add_(1)
        return (y * b).sin(), part[0], b

    y, row, same = checkpoint(body, x, use_reentrant=False)
    row.add_(1)
    return y, row, same is b, part


def views_of_nested_regions(x: torch.Tensor, b: torch.Tensor) -> Any:
    def inner(y: torch.Tensor) -> Any:
        h = y.sin()
        return h, h[0]

    def outer(y: torch.Tensor) -> Any:
        h, row = checkpoint(inner, y * 2, use_reentrant=False)
        return h, row[1:]

    h, part = checkpoint(outer, x, use_reentrant=False)
    part.mul_(2)
    return h, part


@pytest.mark.parametrize(
    "program", [several_views, views_of_what_nobody_holds, view_of_what_was_written, views_of_nested_regions]
)
def test_results_in_one_memory(program: Callable[..., Any]) -> None:
    check(program, lambda: (leaf(3, 4), torch.ones(3, 4)))


@pytest.mark.parametrize("captures", [True, False])
def test_a_step_between_a_region_and_its_backward(captures: bool) -> None:
    """Backward computes again with the new weight where the region captures it, and refuses it where it was given."""

    def run(compiled: bool) -> Any:
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(2, 3))
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def program(x: torch.Tensor) -> torch.Tensor:
            if captures:
                result = checkpoint(lambda x: torch.tanh(x * weight), x, use_reentrant=False)
            else:
                result = checkpoint(lambda x, weight: torch.tanh(x * weight), x, weight, use_reentrant=False)
            optimizer.zero_grad()
            (weight.detach() * weight).sum().backward()
            optimizer.step()
            return result

        x = torch.randn(2, 3, requires_grad=True)
        result = (thunder.jit(program) if compiled else program)(x)
        if captures:
            result.sum().backward()
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                result.sum().backward()
        return result, x.grad, weight.grad, weight

    torch.testing.assert_close(run(True), run(False))


def writes_before_the_check(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    buffer.add_(1)
    return x


def random_before_the_check(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    return nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("before", [writes_before_the_check, random_before_the_check])
def test_effects_before_a_check_in_a_region_are_undone(before: Callable[..., torch.Tensor]) -> None:
    """The program contains backward, so that ops run as they were recorded and the entry of another branch restarts."""

    def program(x: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
        def body(x: torch.Tensor) -> torch.Tensor:
            y = before(x, buffer)
            return (y * 2 if x.sum() > 0 else y * 3).sin()

        y = checkpoint(body, x, use_reentrant=False)
        y.sum().backward()
        return y.detach()

    def observed(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        buffer, seen = torch.zeros(3), []
        for call, sign in enumerate((1.0, -1.0, 1.0, -1.0)):
            torch.manual_seed(call)
            x = (sign * torch.arange(1.0, 9.0)).requires_grad_()
            seen += [function(x, buffer), x.grad, buffer.clone(), torch.rand(1)]
        return seen

    torch.testing.assert_close(observed(thunder.jit(program)), observed(program))

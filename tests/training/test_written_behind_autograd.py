"""Writes that autograd does not see or does not count: values, gradients, and what later writes count for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from tests.subjects import SUBJECT
from tests.training.steps import assert_same, check, leaf, loss_of, raised


def view(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
        y[0]
    return y * x


def part(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        y[0].zero_()
        total = y.sum()
    return y * x, total, y.sin()


def earlier_view(x: torch.Tensor) -> Any:
    y = x * 2
    row, detached = y[0], y.detach()
    with torch.no_grad():
        y.mul_(3)
        norm = row.norm() + detached.norm()
    return row * x, detached * x, y, norm


def several(x: torch.Tensor) -> Any:
    y = x * 2
    for step in range(1, 3):
        with torch.no_grad():
            y.mul_(step + 1)
            y.clamp_(max=3.0)
            y.t()[0].add_(y.mean())
        y = y + x
    return y * x


def nested(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.no_grad():
        y.mul_(3)
        with torch.no_grad():
            size = y.abs().sum()
        with torch.enable_grad():
            z = y + x
        y.add_(1)
        total = y.sum()
    return y * x, z, size, total


def inference(x: torch.Tensor) -> Any:
    y = x * 2
    with torch.inference_mode():
        y.mul_(3)
        y.sum()
        y[0].norm()
    return y * x, y


def places(x: torch.Tensor) -> Any:
    y = x * 2
    y[0].mul_(2)
    with torch.no_grad():
        constant = torch.as_strided(y, (3, 4), (4, 1))
    return constant * x, y


@pytest.mark.parametrize("program", [view, part, earlier_view, several, nested, inference, places])
def test_read_inside_of_the_block_and_after_it(program: Callable[..., Any]) -> None:
    check(program, lambda: [leaf(3, 4)])


@pytest.mark.slow
def test_fused() -> None:
    pytest.importorskip("thunder_plugin_inductor")
    x = leaf(3, 4)
    (expected,) = torch.autograd.grad(view(x).sum(), x)
    (found,) = torch.autograd.grad(thunder.jit(view, executors=["inductor"])(x).sum(), x)
    torch.testing.assert_close(found, expected)


def detached_place(x: torch.Tensor) -> Any:
    detached = x.detach()
    place = torch.as_strided(detached, (2, 4), (4, 1))
    detached.mul_(0.5)
    return place, place[0]


def detached_place_after(x: torch.Tensor) -> Any:
    detached = x.detach()
    detached.mul_(0.5)
    return torch.as_strided(detached, (2, 4), (4, 1)), torch.as_strided(x, (3, 4), (4, 1))


def place_of_data(x: torch.Tensor) -> Any:
    data = x.data
    x.add_(torch.ones(4, requires_grad=True))
    return torch.as_strided(data, (2, 4), (4, 1))


def place_of_constant_view(x: torch.Tensor) -> Any:
    x.add_(torch.ones(4, requires_grad=True))
    with torch.no_grad():
        rows = x[:2]
    return torch.as_strided(rows, (2, 3), (4, 1))


@pytest.mark.parametrize("differentiable", [True, False])
@pytest.mark.parametrize("program", [detached_place, detached_place_after, place_of_data, place_of_constant_view])
def test_place_in_a_written_input(program: Callable[..., Any], differentiable: bool) -> None:
    """It has the gradient of the tensor that it was made of, which may be none."""

    def scenario(function: Any) -> Any:
        source = torch.randn(3, 4, requires_grad=differentiable)
        x = source * 1
        results = function(x)
        results = results if isinstance(results, tuple) else (results,)
        loss = loss_of((*results, x))
        if loss.requires_grad:
            loss.backward()
        return [result.requires_grad for result in results], results, source

    assert_same(lambda: program, scenario)


def other_part(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    x.neg_()
    z.mul_(y)
    return z * 1


def other_part_unseen(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    with torch.no_grad():
        x.neg_()
    z[1:].mul_(y[1:])
    return z * 1


class Cube(torch.autograd.Function):
    """Saves its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


def own_function(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
    x.neg_()
    return Cube.apply(y) * z


@pytest.mark.parametrize("program", [other_part, other_part_unseen, own_function])
@pytest.mark.parametrize(
    "parts", [lambda base: (base[:2], base[2:]), lambda base: (base[:2], base[2:].unsqueeze(0).expand(2, 2))]
)
def test_write_to_another_part_of_what_is_saved(program: Callable[..., Any], parts: Callable[..., Any]) -> None:
    def scenario(function: Any) -> Any:
        source = leaf(4)
        x, y = parts(source * 1)
        z = torch.randn(y.shape, requires_grad=True)
        result = function(x, y, z * 1)
        loss_of((result, x)).backward()
        return result, source, z

    assert_same(lambda: program, scenario)


def test_what_eager_saves_and_the_program_writes_later() -> None:
    """As for other lines, gradients are those of what forward used."""

    def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        z.mul_(x)
        x.neg_()
        return z * 1

    source, factor = leaf(4), leaf(2)
    x = (source * 1)[:2]
    SUBJECT(program)(x, x, factor * 1).sum().backward()
    torch.testing.assert_close(factor.grad, source.detach()[:2])


def through_view(x: torch.Tensor) -> None:
    row = x[0]
    x.data.add_(0.0)
    row += row


def through_detached(x: torch.Tensor) -> None:
    data, detached = x.data[:2], x.detach()
    data.mul_(2)
    detached[0].add_(1)


def alternating(x: torch.Tensor) -> None:
    data = x.data
    data.add_(1)
    x.mul_(2)
    data[0].add_(1)
    x[1].add_(x[0])


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("program", [through_view, through_detached, alternating])
def test_write_after_one_through_data(program: Callable[..., Any], recorded: bool) -> None:
    """A backward that needs the old value is refused."""

    def scenario(function: Any) -> Any:
        x, w = torch.randn(3, 4), leaf(3, 4)
        loss = (w * x).sum()
        with torch.set_grad_enabled(recorded):
            function(x)
        return x, x._version > 0, raised(loss.backward)

    assert_same(lambda: program, scenario)


def batch_norm(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x, mean, mean + 1, training=True)


def batch_norm_of_view(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.batch_norm(x[:, :2], mean[:2], mean[2:], training=True)


def counted_and_batch_norm(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    mean += 1
    return batch_norm(x, mean)


def instance_norm(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.instance_norm(x[None, :2], mean[:2], mean[2:], use_input_stats=True)


def data(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    mean.data.mul_(2)
    return x * 2


def data_of_parameter(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
    x.data.mul_(2)
    return x * 2


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(
    "program", [batch_norm, batch_norm_of_view, counted_and_batch_norm, instance_norm, data, data_of_parameter]
)
def test_versions_count_the_writes_that_eager_counts(program: Callable[..., Any], recorded: bool) -> None:
    """A backward of before needs the old value, or gets what was written."""

    def scenario(function: Any) -> Any:
        x, mean, w = leaf(3, 4), torch.rand(4), leaf(4)
        loss = (w * mean).sum() + (x * x).sum()
        with torch.set_grad_enabled(recorded):
            y = function(x, mean)
        versions = x._version > 0, mean._version > 0
        if recorded:
            y.sin().sum().backward()
        return mean, versions, raised(loss.backward), x.grad, w.grad

    assert_same(lambda: program, scenario)


def test_batch_norm_in_eager_before_the_compiled_call() -> None:
    norms: list[torch.nn.Module] = []

    def make() -> torch.nn.Module:
        norms.append(torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)))
        return norms[-1]

    def scenario(model: Any) -> Any:
        x = leaf(3, 4)
        first, second = norms[-1](x), model(x)
        (first + second).sin().sum().backward()
        return x.grad

    assert_same(make, scenario)

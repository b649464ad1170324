"""Training through graphs is as in eager PyTorch, whatever is done with losses and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphed_programs import Network, Normalized, Pair, same, ungraphed
from torch import nn

import thunder
from thunder_plugin_cudagraphs import CUDAGraphs, statistics
from thunder_plugin_cudagraphs.program import IN_USE


def batch(device: str, rows: int = 4) -> torch.Tensor:
    return torch.randn(2, rows, 16, device=device)


def loss_of(model: Any, x: torch.Tensor) -> torch.Tensor:
    return model(x).square().mean()


def test_twenty_steps(device: str) -> None:
    pair = Pair.of(Network(), device)
    for _ in range(20):
        x = batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
        pair.same_state()
    for phase in ("forward", "backward"):
        found = pair.statistics(phase)
        assert (found.graphs, found.replays, found.captures, ungraphed(found)) == (1, 18, 1, {})


def test_gradients_are_not_copied(device: str) -> None:
    """Each backward leaves them in the memory of its graph."""
    pair = Pair.of(Network(), device)
    places = set()
    for step in range(6):
        pair.compiled.zero_grad()
        loss_of(pair.compiled, batch(device)).backward()
        if step > 2:
            places.add(tuple(parameter.grad.data_ptr() for parameter in pair.compiled.parameters()))
    assert len(places) == 1


def test_dropout_draws_the_same(device: str) -> None:
    pair = Pair.of(Network(dropout=0.4), device)
    for _ in range(8):
        x = batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
    pair.same_state()
    assert pair.statistics("backward").replays == 6


@pytest.mark.parametrize("set_to_none", [True, False], ids=["none", "zero"])
def test_accumulation(device: str, set_to_none: bool) -> None:
    pair = Pair.of(Network(), device)
    for _ in range(8):
        batches = [batch(device) for _ in range(3)]

        def step(model: Any, optimizer: torch.optim.Optimizer, batches: Any = batches) -> list[torch.Tensor]:
            optimizer.zero_grad(set_to_none=set_to_none)
            losses = []
            for x in batches:
                loss = loss_of(model, x)
                loss.backward()
                losses.append(loss.detach())
            optimizer.step()
            return losses

        pair.each(step)
        pair.same_state()
    assert pair.statistics("forward").replays > 10


def test_gradients_are_cleared_between_forward_and_backward(device: str) -> None:
    pair = Pair.of(Network(), device)
    for _ in range(10):
        x = batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            loss = loss_of(model, x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
        pair.same_state()
    assert sum(ungraphed(pair.statistics("forward")).values()) <= 1


def test_two_forwards_before_a_backward(device: str) -> None:
    pair = Pair.of(Network(), device, patience=3)
    for _ in range(10):
        one, other = batch(device), batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, one: Any = one, other: Any = other) -> Any:
            optimizer.zero_grad()
            losses = [loss_of(model, one), loss_of(model, other)]
            for loss in losses:
                loss.backward()
            optimizer.step()
            return [loss.detach() for loss in losses]

        pair.each(step)
        pair.same_state()
    found = pair.statistics("forward")
    assert ungraphed(found)[IN_USE] == 2
    assert found.graphs == 2  # the third time, the second call gets separate memory
    assert pair.statistics("backward").graphs == 2


def test_backwards_in_the_other_order(device: str) -> None:
    pair = Pair.of(Network(), device, patience=1)
    for _ in range(6):
        one, other = batch(device), batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, one: Any = one, other: Any = other) -> Any:
            optimizer.zero_grad()
            first, second = loss_of(model, one), loss_of(model, other)
            first.backward()
            third = loss_of(model, one)
            second.backward()
            third.backward()
            optimizer.step()
            return first.detach(), second.detach(), third.detach()

        pair.each(step)
        pair.same_state()


def test_retained_graphs(device: str) -> None:
    pair = Pair.of(Network(), device)
    for _ in range(6):
        x = batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward(retain_graph=True)
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
        pair.same_state()


def test_second_derivatives(device: str) -> None:
    pair = Pair.of(nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1)), device)
    for _ in range(5):
        x = batch(device).requires_grad_()

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            optimizer.zero_grad()
            (gradient,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
            loss = gradient.square().sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)


def test_results_that_are_kept(device: str) -> None:
    """They keep their values, and no call pays for it from the second on."""
    pair = Pair.of(Network(), device)
    kept = []
    for _ in range(10):
        x = batch(device)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> Any:
            optimizer.zero_grad()
            result = model(x)
            result.square().mean().backward()
            optimizer.step()
            return result

        kept.append((pair.each(step), pair.eager(x)))
    found = [result.detach().clone() for result, _ in kept]
    for (result, _), before in zip(kept, found, strict=True):
        assert torch.equal(result, before)
    pair.same_state()


def test_losses_that_are_kept_cost_nothing(device: str) -> None:
    pair = Pair.of(nn.Sequential(nn.Linear(16, 8), nn.Flatten(0), nn.Linear(64, 1)), device, copy_below=4)
    losses = []
    for _ in range(8):
        pair.compiled.zero_grad()
        loss = pair.compiled(batch(device))
        loss.sum().backward()
        losses.append(loss)
    assert len({loss.item() for loss in losses}) == 8
    assert ungraphed(pair.statistics("forward")) == {}


def test_statistics_of_batches(device: str) -> None:
    pair = Pair.of(Normalized(), device)
    for _ in range(8):
        x = torch.randn(6, 16, device=device)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, x)
            loss.backward()
            optimizer.step()
            return loss.detach()

        pair.each(step)
        pair.same_state()
    assert pair.statistics("forward").replays == 6


def test_some_gradients_only(device: str) -> None:
    """A backward for fewer gradients is another program, with other graphs."""
    pair = Pair.of(Network(), device)
    for turn in range(12):
        x = batch(device).requires_grad_(True)

        def step(model: Any, optimizer: torch.optim.Optimizer, x: Any = x, turn: Any = turn) -> Any:
            loss = loss_of(model, x)
            if turn % 2:
                return torch.autograd.grad(loss, [x, model.first.weight])
            return torch.autograd.grad(loss, [x, *model.parameters()])

        pair.each(step)
    assert pair.statistics("backward").replays > 4


def test_two_models_in_one_step(device: str) -> None:
    one, other = Pair.of(Network(), device), Pair.of(Network(width=16), device)
    for _ in range(8):
        x = batch(device)
        results = []
        for first, second in ((one.eager, other.eager), (one.compiled, other.compiled)):
            for model in (first, second):
                model.zero_grad()
            loss = loss_of(first, x) + loss_of(second, x) * 2
            loss.backward()
            results.append(loss.detach())
        same(results[1], results[0])
        one.same_state()
        other.same_state()


def test_one_program_after_the_other(device: str) -> None:
    """Results of a graph are inputs of another, forward and backward."""

    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(16, 16), nn.GELU()).to(device)

    eager, models = (make(1), make(2)), (make(1), make(2))
    compiled = [thunder.jit(model, transforms=[CUDAGraphs(copy_below=0)]) for model in models]
    for _ in range(8):
        x = batch(device)
        for first, second in (eager, compiled):
            first.zero_grad()
            second.zero_grad()
            second(first(x)).square().sum().backward()
        for own, expected in zip(models, eager, strict=True):
            same([p.grad for p in own.parameters()], [p.grad for p in expected.parameters()])
    assert all(one.replays for model in compiled for one in statistics(model))

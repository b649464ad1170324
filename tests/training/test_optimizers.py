"""Loops of training: optimizers, scaling, clipping, parametrizations, long curves and leaks."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations, prune

from tests.runtime.young_heap import young_heap
from tests.subjects import SUBJECT
from tests.training.steps import CLOSE, assert_same, assert_same_training, detached

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "SGD fused": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.05, amsgrad=True),
    "AdamW foreach": lambda p: torch.optim.AdamW(p, lr=0.05, foreach=True),
    "AdamW fused": lambda p: torch.optim.AdamW(p, lr=0.05, fused=True),
    "Adafactor": lambda p: torch.optim.Adafactor(p, lr=0.05),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "ASGD": lambda p: torch.optim.ASGD(p, lr=0.01),
}


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.2), nn.Linear(8, 2))


def batch() -> tuple[torch.Tensor]:
    return (torch.randn(6, 4),)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer(name: str) -> None:
    assert_same_training(mlp, batch, steps=4, optimizer=OPTIMIZERS[name])


def test_lbfgs() -> None:
    def scenario(model: Any) -> Any:
        x, y = torch.randn(16, 4), torch.randn(16, 2)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        return [optimizer.step(closure).detach() for _ in range(3)]

    assert_same(lambda: mlp().eval(), scenario)


def test_gradient_scaler() -> None:
    """An overflow skips the step, and the scale is what eager's would be."""

    def scenario(model: Any) -> Any:
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        seen = []
        for index in range(6):
            x = torch.randn(6, 4) * (float("inf") if index == 3 else 1)
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            seen.append(clip_grad_norm_(model.parameters(), 0.5))
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            seen.append(torch.tensor(scaler.get_scale()))
        return seen

    assert_same(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), scenario)


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_], ids=lambda clip: clip.__name__)
def test_clipping_and_accumulation(clip: Callable[..., Any]) -> None:
    def scenario(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        norms = []
        for index in range(6):
            (model(*batch()).square().mean() / 3).backward()
            if index % 3 == 2:
                norms.append(clip(model.parameters(), 0.05))
                optimizer.step()
                optimizer.zero_grad(set_to_none=index == 2)
        return norms

    assert_same(mlp, scenario)


def test_optimizer_in_backward() -> None:
    """Gradients go to each parameter's own optimizer as they arrive, and are gone after it."""

    def scenario(model: Any) -> Any:
        optimizers = {p: torch.optim.AdamW([p], lr=0.05) for p in model.parameters()}

        def step(parameter: torch.Tensor) -> None:
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in optimizers:
            parameter.register_post_accumulate_grad_hook(step)
        for _ in range(4):
            model(*batch()).square().mean().backward()
        return all(parameter.grad is None for parameter in optimizers)

    assert_same(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)), scenario)


PARAMETRIZATIONS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "weight_norm": parametrizations.weight_norm,
    "spectral_norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "orthogonal, cayley": lambda layer: parametrizations.orthogonal(layer, orthogonal_map="cayley"),
}
BY_HOOKS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "spectral_norm": torch.nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.4),
}


@pytest.mark.parametrize("name", PARAMETRIZATIONS)
def test_parametrization(name: str) -> None:
    model = nn.Sequential(PARAMETRIZATIONS[name](nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2))
    assert_same_training(lambda: copy.deepcopy(model), batch, steps=3, optimizer=OPTIMIZERS["SGD"])


@pytest.mark.parametrize("name", BY_HOOKS)
def test_weights_made_by_hooks(name: str) -> None:
    def make() -> nn.Module:
        return nn.Sequential(BY_HOOKS[name](nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 2))

    assert_same_training(make, batch, steps=3, optimizer=OPTIMIZERS["SGD"])


def test_parameters_that_come_and_go() -> None:
    """Added, replaced, resized and untied between steps."""

    def scenario(model: Any) -> Any:
        x = torch.randn(6, 4)
        seen = []
        for change in range(5):
            if change == 1:
                model[0].bias = None
            elif change == 2:
                model[0].weight = nn.Parameter(torch.randn(8, 4))
            elif change == 3:
                setattr(model, "4", nn.Linear(8, 3))
            elif change == 4:
                model[4].weight.data = torch.zeros(3, 8)
            model.zero_grad()
            model(x).square().mean().backward()
            seen.append(detached([p.grad for p in model.parameters()]))
        return seen

    assert_same(mlp, scenario)


CURVES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.003),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.slow
def test_curve_of_200_steps(name: str) -> None:
    """A small transformer learns to copy; its losses stay within 1e-4 of eager's, relative."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 16)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
            self.head = nn.Linear(16, 11)

        def forward(self, words: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(
                self.head(self.block(self.embedding(words))).flatten(0, 1), words.flatten()
            )

    curves = []

    def scenario(model: Any) -> None:
        torch.manual_seed(1)
        optimizer = CURVES[name](model.parameters())
        losses = []
        for _ in range(200):
            optimizer.zero_grad()
            loss = model(torch.randint(11, (4, 8)))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        curves.append(losses)

    for compile in (lambda model: model, SUBJECT):
        torch.manual_seed(0)
        scenario(compile(Model()))
    expected, actual = curves
    assert expected[-1] < expected[0] / 2
    assert actual == pytest.approx(expected, rel=1e-4)


def _live_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(item), torch.Tensor) for item in gc.get_objects())


@young_heap()
@pytest.mark.slow
def test_200_steps_leave_nothing_behind() -> None:
    """Also where outputs are kept from step to step, or a graph is never used."""
    model = SUBJECT(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept = None

    def steps(count: int) -> None:
        nonlocal kept
        for index in range(count):
            optimizer.zero_grad()
            output = model(torch.randn(3, 4))
            if index % 5:
                output.square().mean().backward()
                optimizer.step()
            kept = output

    steps(50)
    tensors, objects = _live_tensors(), len(gc.get_objects())
    steps(200)  # what happens once in five steps leaves 40 objects, if any
    assert _live_tensors() - tensors <= 2
    assert len(gc.get_objects()) - objects < 20


def test_the_default_tolerance_sees_a_difference() -> None:
    """The battery itself: a wrong learning rate does not pass."""
    rates = iter((0.1, 0.11))
    with pytest.raises(AssertionError, match="values differ"):
        assert_same_training(
            lambda: nn.Linear(4, 2), batch, optimizer=lambda p: torch.optim.SGD(p, lr=next(rates)), comparison=CLOSE
        )

"""Steps of optimizers inside of compiled functions, against eager: parameters, gradients, states, groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import thunder

Maker = Callable[[Any], optim.Optimizer]

OPTIMIZERS: dict[str, Maker] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD nesterov": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "SGD fused": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "SGD, lr in a tensor": lambda p: optim.SGD(p, lr=torch.tensor(0.1)),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "Adam amsgrad": lambda p: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True, weight_decay=0.1),
    "Adam, lr in a tensor": lambda p: optim.Adam(p, lr=torch.tensor(0.1)),
    "Adam, betas in tensors": lambda p: optim.Adam(
        p, lr=torch.tensor(0.1), betas=(torch.tensor(0.9), torch.tensor(0.99))
    ),
    "Adam foreach": lambda p: optim.Adam(p, lr=0.1, foreach=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1, foreach=False),
    "AdamW fused": lambda p: optim.AdamW(p, lr=0.1, fused=True, amsgrad=True),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "Adamax foreach": lambda p: optim.Adamax(p, lr=0.1, foreach=True),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1, decoupled_weight_decay=True, weight_decay=0.1),
    "NAdam foreach": lambda p: optim.NAdam(p, lr=0.1, foreach=True),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "RAdam foreach": lambda p: optim.RAdam(p, lr=0.1, foreach=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "Adagrad foreach": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1, foreach=True),
    "Adagrad fused": lambda p: optim.Adagrad(p, lr=0.1, fused=True),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1, maximize=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.9, centered=True),
    "RMSprop foreach": lambda p: optim.RMSprop(p, lr=0.01, foreach=True),
    "Rprop": lambda p: optim.Rprop(p, lr=0.01),
    "ASGD": lambda p: optim.ASGD(p, lr=0.01, t0=2.0),
    "ASGD foreach": lambda p: optim.ASGD(p, lr=0.01, foreach=True),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
}


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def _compile(program: Callable[..., Any], compiled: bool) -> Callable[..., Any]:
    return thunder.jit(program) if compiled else program


def _loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def _train(make: Maker, program: str, compiled: bool, steps: int = 5) -> Any:
    """What training leaves after each step."""
    model = _model()
    optimizer = make(model.parameters())
    scheduler = optim.lr_scheduler.StepLR(optimizer, 2, 0.5) if "schedule" in program else None

    def whole(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = _loss(model, x)
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        return loss.detach()

    step = _compile(optimizer.step if program == "method" else lambda: optimizer.step(), compiled)
    compiled_whole = _compile(whole, compiled)

    def apart(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = _loss(model, x)
        loss.backward()
        step()
        return loss.detach()

    seen: list[Any] = []
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(5, 3, generator=generator)
        loss = compiled_whole(x) if program.startswith("whole") else apart(x)
        parameters = [(p.detach().clone(), p.grad) for p in model.parameters()]
        state = {k: dict(v) for k, v in optimizer.state_dict()["state"].items()}
        copied = {
            i: {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in s.items()} for i, s in state.items()
        }
        groups = [dict(group) for group in optimizer.state_dict()["param_groups"]]
        seen.append((loss, parameters, copied, groups))
    if compiled and scheduler is None:
        assert thunder.cache_misses(compiled_whole if program.startswith("whole") else step) <= 2
    return seen


SCHEDULED = ("SGD nesterov", "Adam", "NAdam foreach", "RMSprop", "Adam, lr in a tensor")
OF_EACH_KIND = (
    ("SGD", "step alone"),
    ("Adam, betas in tensors", "step alone"),
    ("Adam foreach", "whole"),
    ("AdamW fused", "whole"),
    ("Rprop", "step alone"),
    ("Adafactor", "whole"),
    ("SGD nesterov", "method"),
    ("NAdam foreach", "method"),
    ("Adam", "whole, schedule"),
    ("Adam, lr in a tensor", "whole, schedule"),
)
OTHERS = [
    case
    for case in (
        *itertools.product(OPTIMIZERS, ("whole", "step alone")),
        *itertools.product(SCHEDULED, ("method", "whole, schedule")),
    )
    if case not in OF_EACH_KIND
]


@pytest.mark.parametrize(("name", "program"), OF_EACH_KIND)
@pytest.mark.slow
def test_an_optimizer_of_each_kind(name: str, program: str) -> None:
    check(name, program)


@pytest.mark.parametrize(("name", "program"), OTHERS)
@pytest.mark.battery
def test_as_eager(name: str, program: str) -> None:
    check(name, program)


def check(name: str, program: str) -> None:
    expected = _train(OPTIMIZERS[name], program, compiled=False)
    torch.testing.assert_close(_train(OPTIMIZERS[name], program, compiled=True), expected)


@pytest.mark.slow
def test_several_steps_and_reads_between() -> None:
    """Each update comes between the lines around it, and its state can be read."""

    def run(compiled: bool) -> Any:
        model = _model()
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        weight = model[0].weight

        def program(x: torch.Tensor) -> Any:
            seen = []
            for _ in range(2):
                optimizer.zero_grad()
                _loss(model, x).backward()
                seen.append(weight * 2)
                optimizer.step()
                state = optimizer.state[weight]
                seen += [weight * 2, state["step"] + 0, state["exp_avg"] * 2]
            return seen

        program = _compile(program, compiled)
        generator = torch.Generator().manual_seed(1)
        results = [program(torch.randn(5, 3, generator=generator)) for _ in range(3)]
        return results, optimizer.state_dict(), list(model.parameters())

    torch.testing.assert_close(run(True), run(False))


@pytest.mark.slow
def test_an_update_that_reads_its_rate() -> None:
    """The first update of SGD with momentum makes its state, which its lines do with the number that the rate is."""

    def run(compiled: bool) -> Any:
        model = _model()
        rate = torch.tensor(0.1)
        optimizer = optim.SGD(model.parameters(), lr=rate, momentum=0.9)

        def program(x: torch.Tensor) -> None:
            optimizer.zero_grad()
            _loss(model, x).backward()
            optimizer.step()

        step = _compile(program, compiled)
        generator = torch.Generator().manual_seed(1)
        for round in range(6):
            step(torch.randn(5, 3, generator=generator))
            rate.fill_(0.1 if round < 3 else 0.01)
        return optimizer.state_dict(), list(model.parameters())

    torch.testing.assert_close(run(True), run(False))


def test_a_gradient_is_reset_after_a_write_and_a_line_with_an_effect() -> None:
    """Whether there is a gradient is a fact of the tensor itself until a line of autograd's changes it."""

    def step(weight: torch.Tensor, x: torch.Tensor, optimizer: optim.Optimizer) -> torch.Tensor:
        print(x.shape)
        with torch.no_grad():
            weight.add_(x * 0.01)
        optimizer.zero_grad()
        (x * weight).sum().backward()
        optimizer.step()
        return weight.detach() * 1

    runs = []
    for compiled in (True, False):
        weight, program = torch.ones(3, requires_grad=True), _compile(step, compiled)
        optimizer = optim.SGD([weight], lr=0.1, momentum=0.9)
        runs.append([(program(weight, torch.ones(3) * n, optimizer), weight.grad.clone()) for n in range(3)])
    torch.testing.assert_close(*runs)

"""Hooks on tensors, parameters and modules: when they fire, what they see, and what they may replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.steps import assert_same, check, detached, leaf, raised


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.middle = nn.Sequential(nn.Tanh(), nn.Linear(8, 8), nn.SiLU())
        self.last = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.middle(self.first(x)) + 1)


def observe(log: list[Any], name: str, replace: bool = False) -> Callable[..., Any]:
    """A hook that notes all tensors it is given, and doubles the last argument if it is to ``replace``."""

    def hook(*args: Any) -> Any:
        seen = [arg for arg in args if not isinstance(arg, nn.Module)]
        log.append((name, detached(seen)))
        return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t * 2, args[-1]) if replace else None

    return hook


def train(model: Any, log: list[Any], *, steps: int = 2) -> Any:
    """Fresh leaf inputs, a loss of the output, and all that the hooks noted."""
    inputs = []
    for _ in range(steps):
        x = leaf(5, 4)
        output = model(x)
        output.square().mean().backward()
        inputs.append((x.grad, output.detach()))
    return inputs, log


def test_hook_inside_the_program_replaces_a_gradient_by_one_of_other_strides() -> None:
    """group_norm's backward reads memory by the strides that it was compiled for."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.nn.functional.group_norm(x, 2)
        y.register_hook(lambda gradient: gradient.sum().expand(gradient.shape))
        return y * x.detach()

    check(program, lambda: (leaf(2, 4, 6),))


@pytest.mark.parametrize("replace", [False, True])
def test_tensor_hooks_on_inputs_and_outputs(replace: bool) -> None:
    def scenario(model: Any) -> Any:
        log: list[Any] = []
        x = leaf(5, 4)
        y = x.sin()
        x.register_hook(observe(log, "leaf", replace))
        handle = y.register_hook(observe(log, "input", replace))
        for step in range(3):
            output = model(y)
            output.register_hook(observe(log, "output", replace))
            output.retain_grad()
            output.square().mean().backward(retain_graph=True)
            log.append(("retained", output.grad.clone()))
            if step == 1:
                handle.remove()
        return x, log

    assert_same(Block, scenario)


@pytest.mark.parametrize("replace", [False, True])
def test_parameter_hooks(replace: bool) -> None:
    def scenario(model: Any) -> Any:
        log: list[Any] = []
        before = train(model, log)
        handle = model.middle[1].weight.register_hook(observe(log, "weight", replace))
        model.last.bias.register_hook(observe(log, "bias", replace))
        during = train(model, log)
        handle.remove()
        return before, during, train(model, log)

    assert_same(Block, scenario)


def test_post_accumulate_hooks() -> None:
    """They run once for each parameter and step, with ``.grad`` set; an optimizer step fits in."""

    def scenario(model: Any) -> Any:
        counts: dict[str, int] = {}

        def step(name: str, parameter: torch.Tensor) -> None:
            counts[name] = counts.get(name, 0) + 1
            with torch.no_grad():
                parameter.sub_(parameter.grad, alpha=0.1)
            parameter.grad = None

        for name, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda p, name=name: step(name, p))
        return train(model, [], steps=3), sorted(counts.items())

    assert_same(Block, scenario)


class HookedInside(nn.Module):
    """Hooks set by the program on its intermediates."""

    def __init__(self, log: list[Any], replace: bool) -> None:
        super().__init__()
        self.block = Block()
        self.seen = log
        self.replace = replace

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        y.register_hook(observe(self.seen, "sine", self.replace))
        z = self.block(y)
        if z.requires_grad:
            z.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01) if self.replace else None)
        return z * 2


@pytest.mark.parametrize("replace", [False, True])
def test_tensor_hooks_inside(replace: bool) -> None:
    assert_same(lambda: HookedInside([], replace), lambda model: train(model, model.seen))


def test_retain_grad_inside() -> None:
    def program(x: torch.Tensor) -> Any:
        y = x.sin()
        y.retain_grad()
        return y, y.exp().sum()

    def scenario(function: Any) -> Any:
        seen = []
        for _ in range(2):
            x = leaf(3, 4)
            y, loss = function(x)
            loss.backward()
            seen.append((x.grad, y.retains_grad, y.grad))
        return seen

    assert_same(lambda: program, scenario)


PLACES = {
    "outermost": "",
    "first": "first",
    "inner container": "middle",
    "in the container": "middle.1",
    "last": "last",
}
KINDS = {
    "forward pre": lambda module, hook: module.register_forward_pre_hook(hook),
    "forward": lambda module, hook: module.register_forward_hook(hook),
    "backward pre": lambda module, hook: module.register_full_backward_pre_hook(hook),
    "backward": lambda module, hook: module.register_full_backward_hook(lambda m, gi, go: hook(m, go, gi)),
}


@pytest.mark.parametrize("replace", [False, True], ids=["observe", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_module_hook(kind: str, replace: bool) -> None:
    check_module_hook(kind, "inner container", replace)


@pytest.mark.parametrize("replace", [False, True], ids=["observe", "replace"])
@pytest.mark.parametrize("place", [place for place in PLACES if place != "inner container"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.battery
def test_module_hook_elsewhere(kind: str, place: str, replace: bool) -> None:
    check_module_hook(kind, place, replace)


def check_module_hook(kind: str, place: str, replace: bool) -> None:
    """Set between two rounds of steps, and removed before a third."""

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        before = train(model, log)
        handle = KINDS[kind](model.get_submodule(PLACES[place]), observe(log, kind, replace))
        during = train(model, log)
        handle.remove()
        return before, during, train(model, log)

    def make() -> nn.Module:
        torch.manual_seed(0)
        return Block()

    assert_same(make, scenario)


@pytest.mark.parametrize("place", PLACES)
def test_module_hooks_set_before_compilation(place: str) -> None:
    logs = []

    def make() -> nn.Module:
        model = Block()
        logs.append([])
        for kind, register in KINDS.items():
            register(model.get_submodule(PLACES[place]), observe(logs[-1], kind))
        return model

    assert_same(make, lambda model: train(model, logs[-1]))


def test_order_of_all_hooks() -> None:
    def scenario(model: Any) -> Any:
        log: list[Any] = []
        for name, module in model.named_modules():
            for kind, register in KINDS.items():
                register(module, observe(log, f"{kind} of {name or 'model'}"))
        return train(model, log, steps=1)[0], [name for name, _ in log]

    assert_same(Block, scenario)


def test_outermost_backward_hooks_with_several_outputs() -> None:
    """Outputs without a cotangent show as None, inputs that need no gradient as well."""

    class Several(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, scale: float) -> Any:
            return x.sin() * scale, y.argmax(), x * y

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        model.register_full_backward_hook(lambda _, gi, go: log.append(detached((gi, go))))
        model.register_full_backward_pre_hook(lambda _, go: log.append(detached(go)))
        for used in (0, 2):
            x, y = leaf(3, 4), torch.randn(3, 4)
            model(x, y, 2.0)[used].sum().backward()
            log.append(x.grad)
        return log

    assert_same(Several, scenario)


def test_a_forward_hook_that_raises() -> None:
    def scenario(model: Any) -> Any:
        def fail(*_: Any) -> None:
            raise KeyError("hook")

        handle = model.register_forward_hook(fail)
        error = raised(lambda: model(leaf(5, 4)))
        handle.remove()
        model.last.weight.register_hook(fail)
        in_backward = raised(lambda: model(leaf(5, 4)).sum().backward())
        model.zero_grad()  # how far backward came before it failed is its own business
        return error, in_backward

    assert_same(Block, scenario)

"""Handles of hooks on tensors that a program removes, hands on and stores; hooks are called as often as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import register_multi_grad_hook

import thunder
from tests.training.steps import leaf
from thunder_core.errors import UnsupportedError

SUBJECTS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda program: program,
    "reference": lambda program: thunder.jit(program, executors=[]),
    "default": thunder.jit,
}


class Case:
    """A program with hooks that note their calls, and what the caller does with its result."""

    def __init__(self) -> None:
        self.calls: list[float] = []
        self.handles: list[Any] = []
        self.weight = leaf(3)

    def hook(self, factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
        def scale(gradient: torch.Tensor) -> torch.Tensor:
            self.calls.append(factor)
            return gradient * factor

        return scale

    def program(self, x: torch.Tensor) -> Any:
        raise NotImplementedError

    def finish(self, result: Any) -> None:
        result.backward()


class Removed(Case):
    def program(self, x: torch.Tensor) -> Any:
        y = x * 2
        handle = y.register_hook(self.hook(100))
        handle.remove()
        handle.remove()
        return (y * 3).sum()


class OneOfThree(Case):
    def program(self, x: torch.Tensor) -> Any:
        y = x * 2
        y.register_hook(self.hook(2))
        handle = y.register_hook(self.hook(100))
        y.register_hook(self.hook(3))
        handle.remove()
        return (y * y).sum()


class Block(Case):
    def program(self, x: torch.Tensor) -> Any:
        y = x * 2
        with y.register_hook(self.hook(100)):
            (y * 3).sum().backward(retain_graph=True)
        return (y * 3).sum()


class OnInput(Case):
    def program(self, x: torch.Tensor) -> Any:
        handle = x.register_hook(self.hook(10))
        (x * 3).sum().backward()
        handle.remove()
        return (x * 3).sum()


class InListAndRemoved(Case):
    def program(self, x: torch.Tensor) -> Any:
        y = x * 2
        handles = [y.register_hook(self.hook(factor)) for factor in (2, 3, 5)]
        for handle in handles[1:]:
            handle.remove()
        return (y * 3).sum()


class StoredInList(Case):
    def program(self, x: torch.Tensor) -> Any:
        y = x * 2
        self.handles.append(y.register_hook(self.hook(100)))
        return (y * 3).sum()

    def finish(self, result: Any) -> None:
        self.handles[-1].remove()
        result.backward()


class Returned(Case):
    def program(self, x: torch.Tensor) -> Any:
        y = x * 2
        return (y * 3).sum(), {"handle": y.register_hook(self.hook(100))}

    def finish(self, result: Any) -> None:
        loss, handles = result
        loss.backward(retain_graph=True)
        handles["handle"].remove()
        loss.backward()


class SetBefore(Case):
    def __init__(self) -> None:
        super().__init__()
        self.handle = self.weight.register_hook(self.hook(100))

    def program(self, x: torch.Tensor) -> Any:
        self.handle.remove()
        return (x * self.weight).sum()


class SetInTheCallBefore(Case):
    handle: Any = None

    def program(self, x: torch.Tensor) -> Any:
        if self.handle is not None:
            self.handle.remove()
        self.handle = self.weight.register_hook(self.hook(10))
        return (x * self.weight).sum()


class AfterAccumulation(Case):
    def program(self, x: torch.Tensor) -> Any:
        def double(parameter: torch.Tensor) -> None:
            self.calls.append(2)
            parameter.grad.mul_(2)  # type: ignore[union-attr]

        handle = self.weight.register_post_accumulate_grad_hook(double)
        (x * self.weight).sum().backward()
        handle.remove()
        return (x * self.weight).sum()


class OfModule(Case):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def program(self, x: torch.Tensor) -> Any:
        handle = self.linear.register_forward_hook(lambda module, args, output: output * 2)
        y = self.linear(x)
        handle.remove()
        return (y * self.linear(x)).sum()


CASES = [
    Removed, OneOfThree, Block, OnInput, InListAndRemoved, StoredInList, Returned, SetBefore, SetInTheCallBefore,
    AfterAccumulation, OfModule,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_gradients_and_calls(case: type[Case]) -> None:
    seen = {}
    for name, subject in SUBJECTS.items():
        torch.manual_seed(0)
        made = case()
        compiled, found = subject(made.program), []
        for _ in range(3):
            x = leaf(3)
            made.finish(compiled(x))
            weight = None if made.weight.grad is None else made.weight.grad.tolist()
            found.append((x.grad.tolist() if x.grad is not None else None, weight, list(made.calls), len(made.handles)))
        seen[name] = found
    assert seen["reference"] == seen["eager"]
    assert seen["default"] == seen["eager"]


def test_hooks_that_stay_are_ops_of_backward() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: gradient * 2)
        return y.sin()

    compiled = thunder.jit(program)
    compiled(leaf(3))
    assert thunder.explain(compiled).entries[0].as_recorded is None


def test_the_graph_is_not_there() -> None:
    def node_hook(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.grad_fn is not None and x.detach().grad_fn is None:
            y.grad_fn.register_hook(lambda *gradients: None)
        return y

    def several(x: torch.Tensor) -> torch.Tensor:
        y, z = x * 2, x * 3
        register_multi_grad_hook((y, z), lambda gradients: None)
        return y * z

    for program in (node_hook, several):
        with pytest.raises(UnsupportedError, match="the autograd graph of a tensor of the program does not exist"):
            thunder.jit(program)(leaf(3))

"""Programs that change modules by the methods of `torch.nn.Module`: hooks, parameters, children, modes."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.subjects import SUBJECT


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.dropped = nn.Dropout(0.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


def with_gradient(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Autograd inside of the program: its recording starts again where that is called."""
    return x + torch.autograd.grad((weight * weight).sum(), weight)[0].sum()


def hook_for_one_call(block: Any, x: torch.Tensor) -> torch.Tensor:
    handle = block.register_forward_hook(lambda module, args, result: result * 2)
    y = block(x)
    handle.remove()
    return with_gradient(y, block.linear.weight)


def pre_hook_for_one_call(block: Any, x: torch.Tensor) -> torch.Tensor:
    handle = block.linear.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    y = block(x)
    handle.remove()
    return with_gradient(y, block.linear.weight)


def backward_hook_for_one_call(block: Any, x: torch.Tensor) -> torch.Tensor:
    handle = block.linear.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
    y = block(x)
    handle.remove()
    return y


def hook_that_stays(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.register_forward_hook(lambda module, args, result: result * 2)
    return block(x)


def pre_hook_that_stays(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.linear.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    return block(x)


def hooks_in_order(block: Any, x: torch.Tensor) -> torch.Tensor:
    handles = [
        block.register_forward_hook(lambda module, args, result: result * 3),
        block.register_forward_hook(lambda module, args, result: result + 3, prepend=True),
        block.register_forward_hook(lambda module, args, kwargs, result: result - 1, with_kwargs=True),
    ]
    y = block(x)
    for handle in handles:
        handle.remove()
    return y


def number_of_hooks(block: Any, x: torch.Tensor) -> torch.Tensor:
    return block(x) * (1 + len(block._forward_hooks))


def replaced_forward(block: Any, x: torch.Tensor) -> torch.Tensor:
    before = block.linear.forward
    block.linear.forward = lambda value: before(value) * 2
    y = block(x)
    del block.linear.forward
    return y


def buffer(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.register_buffer("extra", torch.full((3,), 2.0), persistent=False)
    return block(x) + block.extra


def order_of_parameters(block: Any, x: torch.Tensor) -> torch.Tensor:
    weight = block.linear.weight
    del block.linear.weight
    block.linear.register_parameter("weight", weight)
    return block(x) * len([name for name, _ in block.linear.named_parameters()])


def child_under_two_names(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.add_module("extra", block.linear)
    return block.extra(block(x))


def deleted_child(block: Any, x: torch.Tensor) -> torch.Tensor:
    if "dropped" in block._modules:
        del block.dropped
    return block(x) * len(list(block.children()))


def modes(block: Any, x: torch.Tensor) -> torch.Tensor:
    y = block(x)
    block.eval()
    return y * block(x)


def frozen(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.linear.weight.requires_grad_(not block.linear.weight.requires_grad)
    return block(x)


def marked(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.apply(lambda module: setattr(module, "mark", getattr(module, "mark", 0) + 1))
    return block(x) * block.mark


def loaded(block: Any, x: torch.Tensor) -> torch.Tensor:
    block.load_state_dict({name: value.abs() for name, value in block.state_dict().items()})
    return block(x)


def shallow_copy(block: Any, x: torch.Tensor) -> torch.Tensor:
    other = copy.copy(block)
    other.dropped = nn.Identity()
    return other(x)


PROGRAMS: list[Callable[[Any, torch.Tensor], torch.Tensor]] = [
    hook_for_one_call, pre_hook_for_one_call, backward_hook_for_one_call, hook_that_stays, pre_hook_that_stays,
    hooks_in_order, number_of_hooks, replaced_forward, buffer, order_of_parameters, child_under_two_names,
    deleted_child, modes, frozen, marked, loaded, shallow_copy,
]  # fmt: skip


def described(module: nn.Module) -> Any:
    """Names in their order, modes and hooks of a module and of its children."""
    return (
        module.training,
        [(name, value.requires_grad) for name, value in module._parameters.items()],
        list(module._buffers),
        [(name, type(child).__name__, described(child)) for name, child in module._modules.items()],
        [len(hooks) for hooks in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)],
        sorted(name for name in vars(module) if not name.startswith("_")),
    )


def run(program: Callable[..., Any], wrap: Callable[[Any], Any]) -> tuple[list[Any], list[Any]]:
    """What is true of the module after each call, and the values of results, gradients and buffers."""
    block, facts, values = Block(), [], []
    compiled = wrap(lambda x: program(block, x))
    for number in range(3):
        x = (torch.linspace(-1, 1, 6).view(2, 3) + number).requires_grad_()
        result = compiled(x)
        (result.sin().sum() if result.requires_grad else (result * x).sum()).backward()
        facts.append(described(block))
        gradients = [parameter.grad for parameter in block.parameters()]
        values += [result.detach(), x.grad, *gradients, *[value.clone() for value in block.buffers()]]
        block.zero_grad()
    return facts, values


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.slow
def test_modules_are_changed_as_in_eager(program: Callable[..., Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is compiled at each call
        (facts, values), (eager_facts, eager_values) = run(program, SUBJECT), run(program, lambda function: function)
    assert facts == eager_facts
    for value, expected in zip(values, eager_values, strict=True):
        assert (value is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(value, expected)

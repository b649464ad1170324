"""Backward hooks of modules in differentiated programs: what `tests/training/test_hooks.py` leaves out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from tests.training.steps import assert_same, detached, leaf, raised
from thunder_core.errors import UnsupportedError


def hooks_on(module: nn.Module, log: list[Any], name: str = "") -> Any:
    """Both full kinds of hooks, which note what they are given."""
    module.register_full_backward_pre_hook(lambda _, go: log.append((name, "pre", detached(go))))
    module.register_full_backward_hook(lambda _, gi, go: log.append((name, "full", detached((gi, go)))))


class Program(nn.Module):
    """A function as ``forward``; it gets the children as first argument if there are any."""

    def __init__(self, function: Callable[..., Any], children: tuple[nn.Module, ...]) -> None:
        super().__init__()
        self.function = function
        self.children_ = nn.ModuleList(children)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*([self.children_] if len(self.children_) else []), *args, **kwargs)


def module_of(function: Callable[..., Any], *children: nn.Module) -> nn.Module:
    return Program(function, children)


class Pair(NamedTuple):
    one: torch.Tensor
    other: Any


RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tuple": lambda x: (x.sin(), x.cos()),
    "with None": lambda x: (x.sin(), None, 3),
    "not differentiable": lambda x: (x.sin(), x.argmax(), x.detach() * 2),
    "twice the same": lambda x: (lambda y: (y, y))(x.sin()),
    "nested": lambda x: (x.sin(), (x.cos(), x.exp())),
    "named tuple": lambda x: Pair(x.sin(), x.cos()),
}


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor) and value.requires_grad:
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors(item)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


@pytest.mark.parametrize("outermost", [False, True])
@pytest.mark.parametrize("form", RESULTS)
def test_forms_of_results(form: str, outermost: bool) -> None:
    """All results have gradients, then each alone."""

    def scenario(program: Any) -> Any:
        log: list[Any] = []
        hooks_on(program if outermost else program.children_[0], log)
        for which in (None, 0, 1):
            x = leaf(3, 4)
            found = list(tensors(program(x)))
            chosen = found if which is None else found[which : which + 1]
            if chosen:
                sum(item.square().sum() for item in chosen).backward()
            log.append(x.grad)
        return log

    assert_same(lambda: module_of(lambda children, x: children[0](x), module_of(RESULTS[form])), scenario)


@pytest.mark.parametrize("form", ["dict", "list"])
def test_results_in_other_containers(form: str) -> None:
    """PyTorch warns, and calls no hooks."""

    def result(x: torch.Tensor) -> Any:
        return {"a": x.sin()} if form == "dict" else [x.sin()]

    def scenario(program: Any) -> Any:
        log: list[Any] = []
        hooks_on(program.children_[0], log)
        x = leaf(3, 4)
        with pytest.warns(UserWarning, match="module output should be a Tensor"):
            found = program(x)
        next(tensors(found)).sum().backward()
        return x.grad, log

    assert_same(lambda: module_of(lambda children, x: children[0](x), module_of(result)), scenario)


ARGUMENTS: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "both": lambda module, x, y: module(x, y),
    "the same twice": lambda module, x, y: module(x, x),
    "one as keyword": lambda module, x, y: module(x, other=y),
    "only keywords": lambda module, x, y: module(one=x, other=y),
    "one without gradient": lambda module, x, y: module(x, y.detach()),
    "a number": lambda module, x, y: module(x, 2.0),
    "one that is not used": lambda module, x, y: module(x, 1.0, y),
}


@pytest.mark.parametrize("form", ARGUMENTS)
def test_forms_of_arguments(form: str) -> None:
    def product(one: Any, other: Any, unused: Any = None) -> Any:
        return one.sin() * other

    def scenario(program: Any) -> Any:
        log: list[Any] = []
        hooks_on(program.children_[0], log)
        for _ in range(2):
            x, y = leaf(3, 4), leaf(3, 4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # with keyword arguments eager warns that no inputs require gradients
                program(x * 2, y * 3).square().sum().backward()
            log.append((x.grad, y.grad))
        return log

    assert_same(
        lambda: module_of(lambda children, x, y: ARGUMENTS[form](children[0], x, y), module_of(product)), scenario
    )


def test_no_input_requires_grad() -> None:
    """Hooks are called where the gradient of the outputs is known, with a warning."""

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        hooks_on(model[0], log)
        for _ in range(2):
            with pytest.warns(UserWarning, match="Full backward hook is firing"):
                model(torch.tensor([1, 2, 0])).square().sum().backward()
        return log

    assert_same(lambda: nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 2)), scenario)


def test_frozen_module_and_no_grad() -> None:
    def program(children: Any, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = children[0](x)
        return children[1](x) * scale

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        hooks_on(model.children_[0], log, "without")
        hooks_on(model.children_[1], log, "with")
        x = leaf(2, 4)
        model.children_[1].requires_grad_(False)
        model(x).sum().backward()
        with torch.no_grad():
            model(x)
        return x.grad, log

    assert_same(lambda: module_of(program, nn.Linear(4, 4), nn.Linear(4, 4)), scenario)


@contextmanager
def global_hooks(log: list[Any]) -> Iterator[None]:
    register = torch.nn.modules.module
    handles = (
        register.register_module_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, detached(gi)))),
        register.register_module_full_backward_pre_hook(lambda m, go: log.append((type(m).__name__, detached(go)))),
    )
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def test_hooks_of_all_modules() -> None:
    def scenario(model: Any) -> Any:
        log: list[Any] = []
        for hooked in (False, True, False):
            x = leaf(2, 4)
            if hooked:
                with global_hooks(log):
                    output = model(x)  # eager takes the hooks now
            else:
                output = model(x)
            output.sum().backward()
            log.append(x.grad)
        return log

    assert_same(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), scenario)


def test_hooks_change_between_calls() -> None:
    """The hooks of a call are those at the time of the call; what they close over is what it is when they run."""

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        state = {"factor": 1.0}

        def scaled(_: Any, gi: Any, go: Any) -> Any:
            log.append(state["factor"])
            return (gi[0] * state["factor"],)

        gradients = []
        handle = model[1].register_full_backward_hook(scaled)
        for step in range(4):
            x = leaf(2, 4)
            output = model(x)
            state["factor"] = 2.0 + step
            if step == 1:
                handle.remove()
            output.sum().backward()
            gradients.append(x.grad)
            if step == 2:
                handle = model[1].register_full_backward_hook(scaled)
        return gradients, log

    assert_same(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), scenario)


def test_subset_of_gradients() -> None:
    """Hooks on the path to the requested gradients are called."""

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        for index in range(3):
            hooks_on(model[index], log, str(index))
        x = leaf(2, 4)
        loss = model(x).square().sum()
        found = []
        for asked in ([model[0].weight], [model[2].weight], [model[2].bias, x], [x]):
            found.append(torch.autograd.grad(loss, asked, retain_graph=True))
            log.append("next")
        loss.backward()
        return detached(found), log

    assert_same(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), scenario)


def test_backward_twice_and_module_called_twice() -> None:
    def scenario(model: Any) -> Any:
        log: list[Any] = []
        hooks_on(model.children_[0], log)
        x = leaf(2, 4)
        output = model(x)
        output.sum().backward(retain_graph=True)
        (output * 2).sum().backward()
        return x.grad, log

    assert_same(lambda: module_of(lambda children, x: children[0](children[0](x).sin()), nn.Linear(4, 4)), scenario)


ANSWERS: dict[str, Callable[[Any], Any]] = {
    "another dtype": lambda given: (given[0].double(),),
    "another size": lambda given: (given[0][:1],),
    "too many": lambda given: (given[0], given[0]),
    "no tensor": lambda given: (1,),
    "a tensor": lambda given: given[0],
}


@pytest.mark.parametrize("form", ANSWERS)
@pytest.mark.parametrize("kind", ["full", "pre", "tensor"])
def test_answers_that_do_not_fit(kind: str, form: str) -> None:
    def answer(*args: Any) -> Any:
        if kind != "tensor":
            return ANSWERS[form](args[1])
        (found, *_) = ANSWERS[form](args) if form != "a tensor" else ("text",)
        return found

    def program(children: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        if kind == "tensor":
            y.register_hook(answer)
        return children[0](y)

    def scenario(model: Any) -> Any:
        if kind == "full":
            model.children_[0].register_full_backward_hook(answer)
        if kind == "pre":
            model.children_[0].register_full_backward_pre_hook(answer)
        error = raised(lambda: model(leaf(3, 2)).sum().backward())
        model.zero_grad()
        return error

    assert_same(lambda: module_of(program, nn.Linear(2, 2)), scenario)


def test_writes_to_the_input_of_a_hooked_module() -> None:
    def scenario(model: Any) -> Any:
        model[1].register_full_backward_hook(lambda *_: None)
        return raised(lambda: model(leaf(2, 4)))

    assert_same(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)), scenario)


def test_hooks_that_are_not_full() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    module[1].register_backward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="of modules, register_full_backward_hook"):
        thunder.jit(module)(leaf(2, 4))


@pytest.mark.parametrize("reentrant", [False, True])
def test_hooks_in_a_checkpoint(reentrant: bool) -> None:
    def program(children: Any, log: list[Any], x: torch.Tensor) -> torch.Tensor:
        def region(value: torch.Tensor) -> torch.Tensor:
            return children[1](children[0](value).tanh())

        return checkpoint(region, x.sin(), use_reentrant=reentrant)

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        hooks_on(model.children_[0], log, "first")
        hooks_on(model.children_[1], log, "second")
        for _ in range(2):
            x = leaf(2, 4)
            model(log, x).sum().backward()
            log.append(x.grad)
        return log

    assert_same(lambda: module_of(program, nn.Linear(4, 4), nn.Linear(4, 4)), scenario)


def test_hooks_where_autograd_records_the_program() -> None:
    """A program that calls autograd is not differentiated; the hooks of its modules are called, too."""

    def program(children: Any, x: torch.Tensor) -> Any:
        y = children[0](x)
        y.retain_grad()
        return y, children[1](y).sum()

    def scenario(model: Any) -> Any:
        log: list[Any] = []
        hooks_on(model.children_[0], log, "first")
        hooks_on(model.children_[1], log, "second")
        for _ in range(2):
            x = leaf(2, 4)
            y, loss = model(x)
            loss.backward()
            log.append((x.grad, y.grad))
        return log

    assert_same(lambda: module_of(program, nn.Linear(4, 4), nn.Tanh()), scenario)


def test_second_derivatives() -> None:
    def scenario(model: Any) -> Any:
        log: list[Any] = []
        hooks_on(model[0], log, "first")
        x = leaf(2, 4)
        (gradient,) = torch.autograd.grad(model(x).sum(), [x], create_graph=True)
        gradient.square().sum().backward()
        return x.grad, gradient.detach(), log

    assert_same(lambda: nn.Sequential(nn.Linear(4, 4), nn.Tanh()), scenario)

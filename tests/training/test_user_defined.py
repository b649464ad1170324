"""Differentiation that users define: autograd functions, custom operators, torch.func and autograd inside a program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import Function

from tests.training.autograd_functions import (
    Adjoint,
    Dirty,
    ExpandedGradient,
    GradInside,
    Materialized,
    NeedsInputGrad,
    Nested,
    NonDifferentiable,
    NotMarked,
    NotMaterialized,
    OldStyle,
    OnceDifferentiable,
    SetupContext,
    StraightThrough,
    ViewAndInput,
)
from tests.training.steps import assert_same, assert_same_training, check, gradients, leaf, raised


def twice(x: torch.Tensor) -> Any:
    y = OldStyle.apply(x.cos(), 2.0, "old")
    return OldStyle.apply(y, 3.0, "old") * y


def dirty(x: torch.Tensor) -> Any:
    y = x * 2
    return Dirty.apply(y) + y, y


def not_marked(x: torch.Tensor) -> Any:
    first = torch.zeros(3, 4, 2)
    table = NotMarked.apply(first, x.sin(), 0)
    column = table[..., :1].sum(-1) * 2
    if column[0, 0] > 100:
        column = column * 2
    table = NotMarked.apply(table, column * x, 1)
    return (table * table).sum(-1), first


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "old style": lambda x: OldStyle.apply(x, 2.0, "old"),
    "twice": twice,
    "set-up": lambda x: SetupContext.apply(x.sin(), x, 3),
    "non-differentiable": lambda x: NonDifferentiable.apply(x * 2),
    "dirty": dirty,
    "not marked": not_marked,
    "not materialized": lambda x: NotMaterialized.apply(x),
    "only the second": lambda x: NotMaterialized.apply(x)[1],
    "two of three": lambda x: NotMaterialized.apply(x)[1:],
    "materialized": lambda x: Materialized.apply(x * 2)[2],
    "none of them": lambda x: [y.detach() for y in Materialized.apply(x)],
    "once differentiable": lambda x: OnceDifferentiable.apply(x) * x,
    "nested": lambda x: Nested.apply(x.sin()),
    "differentiates inside": lambda x: GradInside.apply(x * 2),
    "straight through": lambda x: StraightThrough.apply(x * 3).square(),
    "view": lambda x: ViewAndInput.apply(x * 1),
    "result written to": lambda x: StraightThrough.apply(x * 3).mul_(x),
    "under no_grad": torch.no_grad()(lambda x: OldStyle.apply(x, 2.0, "old")),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.slow
def test_function(name: str) -> None:
    check(FUNCTIONS[name], lambda: (leaf(3, 4),))


@pytest.mark.parametrize("needed", [(True, True), (True, False), (False, True), (False, False)], ids=str)
def test_needs_input_grad(needed: tuple[bool, bool]) -> None:
    def make_arguments() -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn(3, 4, requires_grad=flag) for flag in needed)

    check(lambda x, y: NeedsInputGrad.apply(x, y) * 2, make_arguments)


@pytest.mark.parametrize("bound", [False, True], ids=["called", "itself"])
def test_needs_input_grad_when_asked_for_a_part(bound: bool) -> None:
    """torch.autograd.grad for one input: eager's functions then see that only this one is needed."""

    def scenario(function: Any) -> Any:
        x, y = leaf(3, 4), leaf(3, 4)
        output = function(x, y).sum()
        return [gradients(output, inputs, retain_graph=True) for inputs in ([x], [y], [x, y])]

    assert_same(lambda: NeedsInputGrad.apply if bound else lambda x, y: NeedsInputGrad.apply(x, y), scenario)


class Solved(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Adjoint.apply(self.layer, x * 2, *self.layer.parameters())


def test_a_module_and_its_parameters_as_arguments() -> None:
    assert_same_training(Solved, lambda: [leaf(3, 4)])


ADJOINTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "argument": lambda x: Adjoint.apply(lambda y: y * x, x * 2, x),
    "computed": lambda x: (lambda w: Adjoint.apply(lambda y: y * w, x, w))(x.sin()),
    "computed before": lambda x: (lambda w: (lambda v: Adjoint.apply(lambda y: y * v, x, w))(w * 2))(x.sin()),
    "in an object": lambda x: (lambda w: Adjoint.apply(functools.partial(torch.mul, w), x, w))(x.sin()),
    "detached": lambda x: (lambda w: Adjoint.apply(lambda y: y * w, x))(x.detach().sin()),
}


@pytest.mark.parametrize("name", ADJOINTS)
@pytest.mark.filterwarnings("ignore:.*holds a tensor with a grad_fn:thunder_core.errors.UncacheableWarning")
def test_a_function_that_holds_the_parameters(name: str) -> None:
    def scenario(program: Any) -> Any:
        x = leaf(3, 4)
        for _ in range(2):
            program(x * 1 if name == "argument" else x).square().sum().backward()
        return x

    assert_same(lambda: ADJOINTS[name], scenario)


def test_gradients_of_other_strides_than_kernels_before_take() -> None:
    """group_norm's backward reads memory by the strides that it was compiled for."""
    check(
        lambda x, w: ExpandedGradient.apply(torch.nn.functional.group_norm(x, 2, w)),
        lambda: (leaf(2, 4, 6), leaf(4)),
    )


def test_counters_and_prints_of_backward_run_once_per_backward() -> None:
    def scenario(function: Any) -> Any:
        calls.clear()
        for _ in range(3):
            function(leaf(3, 4)).sum().backward()
        return list(calls)

    calls: list[int] = []

    class Counts(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return gradient * 2

    assert_same(lambda: lambda x: Counts.apply(x).sin(), scenario)


class WrongShape(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient[:, :2]


class NoBackward(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize("function", [WrongShape, NoBackward])
def test_functions_with_mistakes(function: type[Function]) -> None:
    """An error at the same kind of place: in the call or in backward."""

    def scenario(program: Any) -> Any:
        return raised(lambda: program(leaf(3, 4)).sum().backward())

    assert_same(lambda: lambda x: function.apply(x) * 2, scenario)


class ToldApart(Function):
    """Its backward gives another gradient for a result that is not used than for one with a gradient of zeros."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(y)
        return x * 2, x + y, "text"

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor | None, second: torch.Tensor | None, text: None) -> Any:
        (y,) = ctx.saved_tensors
        assert text is None
        gradient = torch.full_like(y, 10.0) if first is None else first * 2
        return gradient + (100 if second is None else second), None if second is None else second * y


USES: dict[str, Callable[[Any], Any]] = {
    "as they are": lambda results: results,
    "with lines after them": lambda results: (results[0] * 2, results[1].sin()),
    "as views": lambda results: (results[0].view(-1), results[1][0]),
    "detached": lambda results: (results[0] * 2, results[1].detach() + results[0]),
    "written": lambda results: (results[0] * 2, (results[1] * 1).add_(1)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("parts", [(0,), (1,), (0, 1), (1, 0)], ids=str)
@pytest.mark.battery
def test_results_of_a_function_that_are_not_used(use: str, parts: tuple[int, ...]) -> None:
    def scenario(function: Callable[..., Any]) -> Any:
        seen = []
        for part in parts:
            x = leaf(3, 4)
            results = function(x)
            seen.append(gradients(results[part].sum(), x))
            both = [result for result in function(x)[:2] if result.requires_grad]
            seen.append(gradients(sum(result.sum() for result in both), x))
        return seen

    assert_same(lambda: lambda x: USES[use](ToldApart.apply(x * 1, x.sin())), scenario)

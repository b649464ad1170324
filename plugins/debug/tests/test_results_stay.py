"""No transform changes what a program computes, writes, draws or keeps alive."""

from __future__ import annotations

import copy
import itertools
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.executors import Executor
from thunder_core.passes.transform import Transform
from thunder_plugin_debug import Bisect, LineCallbacks, LineTiming, NanFinder
from thunder_testing import Comparison, assert_same_behaviour


def everything() -> list[Transform]:
    return [Bisect(), LineCallbacks(before_line=lambda *_: None), NanFinder(inf=True, inputs=True), LineTiming()]


@pytest.fixture(params=["one by one", "together"])
def transforms(request: pytest.FixtureRequest) -> list[list[Transform]]:
    return [[one] for one in everything()] if request.param == "one by one" else [everything()]


@pytest.mark.slow
def test_training(network: nn.Module, right_silu: Executor, fusion: Any, transforms: list[list[Transform]]) -> None:
    """A module with dropout, a buffer that it writes, running statistics and gradients."""
    executors = [right_silu, fusion()]
    for chosen in transforms:
        assert_same_behaviour(
            copy.deepcopy(network),
            lambda: (torch.randn(6, 4, requires_grad=True),),
            lambda module, chosen=chosen: thunder.jit(module, executors=executors, transforms=chosen),
            comparison=Comparison(rtol=1e-5, atol=1e-6, gradients=True),
            rounds=3,
            cache_hits=thunder.cache_hits,
        )


def in_place(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.mul_(2)
    view = x[0]
    view += y.exp()
    return x, view, torch.rand_like(y), y.t()


def branches(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda a, b: a + b, lambda a, b: a * b, (x, y))


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return 3 * x**2 * gradients[0]


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    if y.requires_grad:
        y.register_hook(lambda gradient: gradient * 2)
    return Cube.apply(y)


def recomputed(x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda value: F.silu(value.sin()).exp(), x, use_reentrant=False)


def penalty(x: torch.Tensor) -> torch.Tensor:
    (slope,) = torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)
    return slope.square().sum()


@pytest.mark.parametrize(
    ("function", "shapes", "grad"),
    [
        (in_place, ((2, 3), (3,)), False),
        (branches, ((3,), (3,)), False),
        (hooked, ((3,),), True),
        (recomputed, ((3,),), True),
        (penalty, ((3,),), True),
    ],
)
@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.slow
def test_other_programs(
    function: Callable[..., Any],
    shapes: tuple[tuple[int, ...], ...],
    grad: bool,
    right_silu: Executor,
    transforms: list[list[Transform]],
) -> None:
    for chosen in transforms:
        assert_same_behaviour(
            function,
            lambda: tuple([torch.randn(shape, requires_grad=grad) for shape in shapes]),
            lambda program, chosen=chosen: thunder.jit(program, executors=[right_silu], transforms=chosen),
            comparison=Comparison(rtol=1e-6, atol=1e-6, gradients=grad),
        )


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_order(right_silu: Executor, order: tuple[int, ...]) -> None:
    """Whatever the order in which they are given, times are of the line alone, and comparisons are outermost."""
    compiled = thunder.jit(F.silu, executors=[right_silu], transforms=[everything()[position] for position in order])
    compiled(torch.ones(3, requires_grad=True))
    assert "bisect_line_callbacks_nan_finder_line_timing_" in str(thunder.last_traces(compiled)[-1])


def test_values_are_freed_when_they_are_without_transforms(right_silu: Executor) -> None:
    """Each value dies at the line after its last use: nobody keeps it."""
    alive: dict[str, weakref.ref[torch.Tensor]] = {}
    living: list[set[str]] = []

    def look(line: Any, args: Any, kwargs: Any) -> None:
        living.append({name for name, reference in alive.items() if reference() is not None})

    def remember(line: Any, args: Any, kwargs: Any, result: torch.Tensor) -> None:
        alive[line.outputs[0]] = weakref.ref(result)

    def chain(x: torch.Tensor) -> torch.Tensor:
        a = torch.sin(x)  # t0
        b = F.silu(a)  # t1
        c = torch.exp(b)  # t2
        return c.sum()

    callbacks = LineCallbacks(before_line=look, after_line=remember)
    others = [one for one in everything() if one.name != "line_callbacks"]
    compiled = thunder.jit(chain, executors=[right_silu], transforms=[*others, callbacks])
    compiled(torch.randn(3))
    assert living == [set(), {"t0"}, {"t1"}, {"t2"}]


def test_one_object_for_several_programs_and_threads() -> None:
    """Nothing is lost where threads run lines at the same time."""
    timing, finder = LineTiming(), NanFinder()
    first = thunder.jit(lambda x: torch.sin(x) * 2, transforms=[timing, finder])
    second = thunder.jit(lambda x: torch.cos(x).sum(), transforms=[timing, finder])
    x = torch.randn(8)
    first(x), second(x)
    timing.reset()
    failures: list[Exception] = []

    def work() -> None:
        try:
            for _ in range(50):
                torch.testing.assert_close(first(x), torch.sin(x) * 2)
                torch.testing.assert_close(second(x), torch.cos(x).sum())
        except Exception as error:  # shown by the test
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {record.calls for record in timing.records} == {200}
    assert len(timing.records) == 4

"""Regions of random programs: every line in one, none waits for itself, the values are the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from thunder_core.ir.trace import Stage
from thunder_core.passes.admission import region_call
from thunder_core.passes.dependencies import dependencies, run_order
from thunder_fusion.regions import find_regions
from thunder_testing.pointwise import Pointwise

OPERATIONS: tuple[Any, ...] = (
    torch.add,
    torch.mul,
    lambda a, b: a @ b,
    lambda a, b: a.sin(),
    lambda a, b: a.t(),
    lambda a, b: a[:2].sum(0) + b,
    lambda a, b: torch.relu(a) - b,
    lambda a, b: a + torch.rand(3, 3) * b,
    lambda a, b: a.clone().add_(b),
)
STEPS = st.lists(st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 30), st.integers(0, 30)), max_size=25)


def program_of(steps: list[tuple[int, int, int]], kept: int) -> Any:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        values = [x, y]
        for operation, one, other in steps:
            values.append(OPERATIONS[operation](values[one % len(values)], values[other % len(values)]) * 0.5)
        return values[-1 - kept % len(values) :]

    return program


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 30), st.lists(st.sampled_from([None, 0, 1]), min_size=200, max_size=200))
@pytest.mark.slow
def test_order_and_completeness(steps: Any, kept: int, drawn: list[int | None]) -> None:
    compiled = thunder.jit(program_of(steps, kept), executors=[])
    compiled(torch.ones(3, 3), torch.ones(3, 3))
    trace = next(trace for trace in thunder.last_traces(compiled) if trace.stage is Stage.FUNCTIONAL)
    labels = [label if bound.effects.pure else None for bound, label in zip(trace.symbols, drawn)]
    regions = find_regions(trace.symbols, labels)
    before = dependencies(trace.symbols)
    order = run_order(before, regions)
    assert order is not None
    assert sorted(index for group in order for index in group) == list(range(len(trace.symbols)))
    place = {index: number for number, group in enumerate(order) for index in group}
    for index, earlier in enumerate(before):
        assert all(place[other] <= place[index] for other in earlier)
    labelled = [index for index, label in enumerate(labels) if label is not None]
    assert sorted(index for region in regions for index in region) == labelled
    for region in regions:
        assert len({labels[index] for index in region}) == 1


@settings(max_examples=30, deadline=None)
@given(STEPS, st.integers(0, 30))
@pytest.mark.slow
def test_same_values(steps: Any, kept: int) -> None:
    program = program_of(steps, kept)
    arguments = torch.randn(3, 3), torch.randn(3, 3)
    torch.manual_seed(3)
    expected = program(*arguments)
    torch.manual_seed(3)
    torch.testing.assert_close(thunder.jit(program, executors=[Pointwise()])(*arguments), expected)


def test_lines_wait_for_their_readers() -> None:
    """What is made of weights is made where it is used, not all at the start."""

    def program(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        for weight in weights:
            x = x @ (weight * 2)
        return x

    compiled = thunder.jit(program, executors=[Pointwise()])
    compiled(torch.ones(2, 2), [torch.ones(2, 2) for _ in range(5)])
    assert [line.symbol.executor for line in thunder.last_traces(compiled)[-1].symbols] == ["pointwise", None] * 5


def test_equal_regions_are_compiled_once() -> None:
    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = x + torch.relu((x * 2 + 1) @ weight)
        return x

    executor = Pointwise()
    compiled = thunder.jit(program, executors=[executor])
    x, weight = torch.randn(2, 2), torch.randn(2, 2)
    torch.testing.assert_close(compiled(x, weight), program(x, weight))
    assert executor.names() == [["mul", "add"], ["relu", "add", "mul", "add"], ["relu", "add"]]
    called = [region_call(line) for line in thunder.last_traces(compiled)[-1].symbols if line.symbol.executor]
    assert [len(set(called)), len(called)] == [3, 7]


DIFFERENT: dict[str, Any] = {
    "constant": lambda x: (x * 2 + 1, (x @ x) * 2 + 2),
    "type of a constant": lambda x: (x.int() * 2 + 1, (x @ x).int() * 2 + True),
    "sign of zero": lambda x: (x * 0.0 + x, (x @ x) * -0.0 + x @ x),
    "shape": lambda x: (x * 2 + 1, (x @ x)[0] * 2 + 1),
    "stride": lambda x: (x * 2 + 1, (x @ x).t() * 2 + 1),
    "dtype": lambda x: (x * 2 + 1, (x.double() @ x.double()) * 2 + 1),
    "order of operands": lambda x: (x * 2 - x, x @ x, x - x * 2),
    "which value is returned": lambda x: ((x * 2 + 1).sin() @ x, ((y := (x @ x) * 2 + 1) @ x, y.sin())),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_different_regions_are_not_mixed_up(name: str) -> None:
    x = torch.randn(3, 3)
    actual = thunder.jit(DIFFERENT[name], executors=[Pointwise()])(x)
    torch.testing.assert_close(actual, DIFFERENT[name](x), rtol=0, atol=0)
    for one, other in zip(torch.utils._pytree.tree_leaves(actual), torch.utils._pytree.tree_leaves(DIFFERENT[name](x))):
        assert torch.equal(one.signbit(), other.signbit())

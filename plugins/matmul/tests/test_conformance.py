"""What holds for every pass over products and conversions: same behaviour, idempotence, linear time."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matrix_programs import OPERATIONS, PROGRAMS, Step, random_program

import thunder
from thunder_core.passes.functionalize import functional_form
from thunder_core.passes.transform import Phase, Transform, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_matmul.accumulate_products import AccumulateProducts
from thunder_plugin_matmul.dtype_round_trips import DtypeRoundTrips
from thunder_plugin_matmul.fold_transposes import FoldTransposes
from thunder_plugin_matmul.merge_matmuls import MergeMatmuls
from thunder_testing import Arguments, Comparison, assert_same_behaviour, transform_suite

PASSES: tuple[Transform, ...] = (AccumulateProducts(), DtypeRoundTrips(), FoldTransposes())
by_name = pytest.mark.parametrize("transform", PASSES, ids=lambda item: item.name)

# The sum of a product is rounded once, not twice: in bfloat16 that is a difference of 2**-9.
test_accumulate_products = pytest.mark.battery(transform_suite(AccumulateProducts(), programs=PROGRAMS))
test_dtype_round_trips = pytest.mark.battery(
    transform_suite(DtypeRoundTrips(), tolerance=(0, 0), gradient_tolerance=(0, 0), programs=PROGRAMS)
)
test_fold_transposes = pytest.mark.battery(transform_suite(FoldTransposes(), programs=PROGRAMS))
_MOVED = (
    "sibling parameters share memory afterwards, as documented; test_merge_matmuls.py compares values and gradients"
)
test_merge_matmuls = pytest.mark.battery(
    transform_suite(
        MergeMatmuls(),
        programs=PROGRAMS,
        skip={
            f"{name}-{word}": _MOVED
            for name in ("linear_layers", "attention", "gated*")
            for word in ("inference", "training")
        },
    )
)

steps = st.lists(
    st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 20), st.integers(0, 20)), min_size=2, max_size=12
)


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 4, dtype=torch.float64).requires_grad_(index < 2) for index in range(3)]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(program_steps=steps, results=st.lists(st.integers(0, 20), min_size=1, max_size=3))
@pytest.mark.slow
def test_random_programs(program_steps: list[Step], results: list[int]) -> None:
    assert_same_behaviour(
        random_program(program_steps, results),
        lambda: Arguments(*inputs()),
        lambda program: thunder.jit(program, transforms=[*PASSES], executors=[]),
        comparison=Comparison(rtol=1e-5, atol=1e-5),
    )


@by_name
@pytest.mark.parametrize("program", [item for item in PROGRAMS if not item.is_module], ids=lambda item: item.name)
def test_idempotent(transform: Transform, program: Any) -> None:
    """A second run finds nothing, at any of the places."""
    arguments = program.arguments().args
    trace = _functional(program.make(), *arguments)
    for place in (transform.place, *transform.also):
        context = TransformContext(Phase.INFERENCE, place=place)
        trace = transform.run(trace, context)
        assert transform.run(trace, context).symbols == trace.symbols


def _functional(function: Any, *arguments: Any) -> Any:
    return functional_form(front_end.record(function, arguments, {}).trace).computation


def chain(length: int) -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        for _ in range(length):
            y = x @ x + x.t().contiguous() @ x
            x = y.to(torch.float64).t().to(torch.float32) * 0.1
        return x

    return front_end.record(program, (torch.randn(4, 4),), {}).trace


@by_name
@pytest.mark.slow
def test_linear_time(transform: Transform) -> None:
    """Eight times the lines take about eight times as many calls of Python functions."""
    small, large = (_calls(transform, chain(length)) for length in (25, 200))
    assert large < 10 * small


def _calls(transform: Transform, trace: Any) -> int:
    """How many functions are called while the transform runs; it has run before, so that nothing is imported."""
    context = TransformContext(Phase.INFERENCE, place=transform.place)
    transform.run(trace, context)
    count = 0

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        transform.run(trace, context)
    finally:
        sys.setprofile(previous)
    return count


@by_name
def test_nothing_to_do(transform: Transform) -> None:
    trace = _functional(lambda x: (x * 2).sum(), torch.ones(3))
    assert transform.run(trace, TransformContext(Phase.INFERENCE, place=transform.place)) is trace

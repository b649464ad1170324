"""Random programs: eager, compiled and at each stage of that must look the same to a caller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

import thunder
from tests.passes.compare_runs import assert_same, observe
from tests.passes.programs import acquire_program, functionalize, run_functionalized
from tests.passes.random_programs import OPERATIONS, Step, make_inputs, make_program
from thunder_core.errors import ThunderError
from thunder_core.ir.program import compile_trace
from thunder_core.ir.trace import Trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.reinplace import Reinplace, ReinplaceParts
from thunder_core.passes.transform import Phase, TransformContext
from thunder_plugin_simplify import CommonSubexpression

steps = st.lists(
    st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 20), st.integers(0, 20), st.integers(0, 4)),
    min_size=1,
    max_size=8,
)
Run = Callable[[list[Any]], tuple[Any, ...]]


def stages(trace: Trace) -> Iterator[tuple[str, Run]]:
    """The program at each stage, as a function of the trace's inputs."""
    yield "acquired", lambda inputs: compile_trace(trace)(*inputs)
    cleaned = CommonSubexpression().run(without_dead_code(trace), TransformContext(Phase.INFERENCE))
    verify(cleaned)
    yield "cleaned", lambda inputs: compile_trace(cleaned)(*inputs)
    functional = functionalize(trace)
    yield "functional", lambda inputs: run_functionalized(functional, inputs)
    computation = CommonSubexpression().run(
        without_dead_code(functional.computation), TransformContext(Phase.INFERENCE, functional.donated)
    )
    verify(computation)
    restored = PassManager(verify=True).run(Reinplace(functional), computation)
    verify(restored.computation)
    yield "reinplaced", lambda inputs: run_functionalized(restored, inputs)
    parts = PassManager(verify=True).run(ReinplaceParts(functional), computation)
    both = PassManager(verify=True).run(Reinplace(parts), parts.computation)
    yield "parts first", lambda inputs: run_functionalized(both, inputs)


def eagerly(program: Callable[..., tuple[Any, ...]], kind: int) -> dict[str, Any]:
    """What eager does; programs that it refuses are left out."""
    try:
        return observe(lambda inputs: program(*inputs), make_inputs(kind))
    except (RuntimeError, IndexError, TypeError):
        reject()


def check(kind: int, program_steps: list[Step], results: list[int], grad: bool) -> None:
    program = make_program(program_steps, results, grad)
    expected = eagerly(program, kind)
    originals = make_inputs(kind)
    places = {id(tensor): index for index, tensor in enumerate(originals)}
    try:
        acquired = acquire_program(program, *originals)
        runs = list(stages(acquired.trace))
    except (ThunderError, RuntimeError):
        assume(False)  # refused with an error, which other tests look at
    for name, run in runs:

        def call(inputs: list[Any], run: Run = run) -> tuple[Any, ...]:
            return run([inputs[places[id(item)]] if id(item) in places else item for item in acquired.inputs])

        assert_same(expected, observe(call, make_inputs(kind)), f"{name}\n{acquired.trace}")


def on_random_programs(seed: int, program: Callable[[int, list[Step], list[int], bool], None]) -> None:
    """Call a check with eight programs, which depend on the seed."""
    arguments = st.integers(0, 11), steps, st.lists(st.integers(0, 20), min_size=1, max_size=3), st.booleans()
    limits = settings(max_examples=8, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    hypothesis.seed(seed)(limits(given(*arguments)(program)))()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.battery
def test_random_programs(seed: int) -> None:
    def program(kind: int, program_steps: list[Step], results: list[int], grad: bool) -> None:
        torch.manual_seed(0)
        check(kind, program_steps, results, grad)

    on_random_programs(seed, program)


@pytest.mark.parametrize(
    ("kind", "program_steps", "grad"),
    [
        (0, [(32, 3, 0, 0), (32, 3, 0, 0), (43, 0, 6, 0)], False),  # the second detached tensor is detached too
        (3, [(32, 2, 0, 0), (22, 1, 0, 0), (42, 5, 3, 0)], True),  # written with a gradient, detached
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_program_that_once_went_wrong(kind: int, program_steps: list[Step], grad: bool) -> None:
    check(kind, program_steps, [0], grad)


def check_compiled(kind: int, program_steps: list[Step], results: list[int], grad: bool) -> None:
    """With gradients, by the reference executor."""
    program = make_program(program_steps, results, grad)
    expected = eagerly(program, kind)
    compiled = thunder.jit(program, executors=[])
    try:
        actual = observe(lambda inputs: compiled(*inputs), make_inputs(kind))
    except (ThunderError, RuntimeError):
        assume(False)
    assert_same(expected, actual)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.filterwarnings("ignore")
@pytest.mark.battery
def test_compiled_random_programs(seed: int) -> None:
    on_random_programs(seed, check_compiled)


@pytest.mark.parametrize(
    ("kind", "program_steps", "results"),
    [
        (0, [(28, 4, 12, 3)], [10]),  # autograd differentiates what is written to an argument
        (7, [(3, 9, 1, 3), (37, 20, 16, 3), (24, 10, 1, 4)], [17]),  # views of one tensor
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_compiled_program_that_once_went_wrong(kind: int, program_steps: list[Step], results: list[int]) -> None:
    check_compiled(kind, program_steps, results, True)

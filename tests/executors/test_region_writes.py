"""Regions that write a part of some memory in place: what is in them, in which order they run, what others see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import thunder
from tests.batteries import is_sample
from thunder_core.ir.bound_symbol import tensor_inputs_of, tensor_outputs_of, tensors_written_by
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.verifier import verify
from thunder_testing.pointwise import Pointwise


class Writing(Pointwise):
    """Fuses all lines without effects, and all writes."""

    def can_fuse(self, bound: Any) -> bool | str:
        return True

    def can_write(self, bound: Any) -> bool | str:
        return True

    def fuse(self, region: Trace) -> Callable[..., tuple[Any, ...]] | str:
        """Inside of a region written memory is an input that nothing else looks at."""
        verify(region)
        given = {proxy.storage for proxy in region.inputs}
        for line in region.symbols:
            for storage in {proxy.storage for proxy in tensors_written_by(line)}:
                assert storage in given
                touching = [
                    other
                    for other in region.symbols
                    if not other.is_view()
                    and storage in {p.storage for p in (*tensor_inputs_of(other), *tensor_outputs_of(other))}
                ]
                assert touching == [line]
                assert region.stage is Stage.EXECUTABLE
        return super().fuse(region)


def a_token(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    cache.index_copy_(-2, at, x * 2)
    return cache.exp()


def a_view(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    rows = cache[:2]
    return rows.index_copy_(-2, at, x[:2] * 2), rows, cache.sum()


def two_memories(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    other = x.repeat(1, 8, 1)
    cache.index_copy_(1, at, x * 2)
    other.index_copy_(1, at, x * 3)
    return cache + other, other


def overlapping(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    cache[:2].index_copy_(1, at, x[:2] * 2)
    cache[1:].index_copy_(1, at, x[1:] + 1)
    return cache.sum(0)


def read_between(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    first = cache * 2
    cache.index_copy_(1, at, x * 2)
    second = cache * 3
    cache.index_copy_(1, at, x * 5)
    return first, second, cache + 1


def nothing_returned(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    cache.index_copy_(1, at, x * 2)


def old_values(cache: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> Any:
    copy = cache * 1
    row = copy[0]
    copy.index_copy_(1, at, x * 2)
    return row + 1, copy, row


PROGRAMS = {  # with the number of regions that write
    a_token: 1,
    a_view: 1,
    two_memories: 1,
    overlapping: 2,
    read_between: 2,
    nothing_returned: 1,
    old_values: 1,
}


def shown(results: Any, cache: torch.Tensor) -> list[tuple[int, bool]]:
    """For each result the first that is the same object, and whether it shares the cache's memory."""
    values = [*results] if isinstance(results, tuple) else [results]
    place = cache.untyped_storage().data_ptr()
    same = [next(index for index, other in enumerate(values) if other is value) for value in values]
    shares = [value is not None and value.untyped_storage().data_ptr() == place for value in values]
    return list(zip(same, shares, strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_as_in_eager(program: Any, mode: Any) -> None:
    executor = Writing()
    caches = [torch.zeros(3, 8, 4), torch.zeros(3, 8, 4)]
    compiled = thunder.jit(program, executors=[executor])
    with mode():
        for position in (3, 0, 7):
            at, x = torch.tensor([position]), torch.randn(3, 1, 4)
            found, expected = (call(cache, at, x) for call, cache in zip((compiled, program), caches, strict=True))
            assert shown(found, caches[0]) == shown(expected, caches[1])
            if expected is not None:
                torch.testing.assert_close(found, expected)
            torch.testing.assert_close(*caches, rtol=0, atol=0)
            assert caches[0]._version == caches[1]._version
    lines = [line for line in thunder.last_traces(compiled)[-1].symbols if line.effects.mutates]
    assert [line.symbol.executor for line in lines] == ["pointwise"] * PROGRAMS[program]


def write(values: list[torch.Tensor], one: torch.Tensor, other: torch.Tensor, at: int) -> torch.Tensor:
    part = one[at % 2 : at % 2 + 2]
    return part.index_copy_(0, torch.tensor([at % 2]), other[:1] * 0.5)


STEPS: tuple[Any, ...] = (
    write,
    write,
    lambda values, one, other, at: one.index_copy_(1, torch.tensor([at % 3]), other[:, :1].clone()),
    lambda values, one, other, at: one + other,
    lambda values, one, other, at: one.t(),
    lambda values, one, other, at: one.sin() * 2,
    lambda values, one, other, at: one.mul_(0.5),
    lambda values, one, other, at: one @ other,
)
NUMBERS = st.integers(0, 30)


@settings(max_examples=15 if is_sample() else 100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(STEPS) - 1), NUMBERS, NUMBERS, NUMBERS), max_size=14), NUMBERS)
@example([(2, 0, 0, 0), (4, 0, 0, 0), (2, 3, 0, 0), (0, 3, 1, 0), (0, 0, 0, 0)], 0)  # not all are put back
@example([(4, 0, 0, 0), (6, 1, 0, 0), (2, 0, 0, 0), (2, 0, 0, 0), (2, 20, 0, 0), (0, 2, 1, 0), (0, 0, 0, 0)], 0)
@pytest.mark.slow
def test_random_programs(steps: list[tuple[int, int, int, int]], kept: int) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        values = [x, y]
        for step, one, other, at in steps:
            chosen = values[one % len(values)], values[other % len(values)]
            found = STEPS[step](values, *chosen, at)
            values += [found] if found.shape == x.shape else []
        return values[-1 - kept % len(values) :]

    ours, theirs = ([torch.arange(9.0).view(3, 3) / 4, torch.ones(3, 3)] for _ in range(2))
    with torch.no_grad():
        expected = program(*theirs)
        found = thunder.jit(program, executors=[Writing()])(*ours)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(ours, theirs)


def test_refused_regions_are_written_by_others() -> None:
    program = thunder.jit(a_token, executors=[Writing(refuses=("index_copy_",))])
    cache, at, x = torch.zeros(3, 8, 4), torch.tensor([2]), torch.ones(3, 1, 4)
    program(cache, at, x)
    assert cache[:, 2].eq(2).all()
    assert cache.sum() == 24
    (line,) = (line for line in thunder.explain(program).decisions if line.symbol.endswith("index_copy_"))
    assert line.executor == "reference"
    assert line.declined == (("pointwise", "it cannot compile index_copy_"),)


def test_inference_tensors_outside_of_inference_mode() -> None:
    program = thunder.jit(a_token, executors=[Writing()])
    with torch.inference_mode():
        cache = torch.zeros(3, 8, 4)
        program(cache, torch.tensor([2]), torch.ones(3, 1, 4))
    with torch.no_grad(), pytest.raises(RuntimeError, match="inference tensor"):
        program(cache, torch.tensor([2]), torch.ones(3, 1, 4))

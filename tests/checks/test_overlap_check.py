"""Tensors that a program writes must not share memory with its other inputs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from thunder_core.checks.shared_memory import OverlapCheck, overlaps

SLICES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8), st.integers(1, 3)), min_size=2, max_size=6)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(SLICES, st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5))), st.booleans())
def test_as_each_pair_by_itself(slices, chosen, separate):
    memory = torch.zeros(64)
    tensors = [
        memory.clone()[:4] if separate and not index else memory[start : start + length * step : step]
        for index, (start, length, step) in enumerate(slices)
    ]
    pairs = [(one, other) for one, other in chosen if one < len(tensors) and other < len(tensors) and one != other]
    check = OverlapCheck(pairs, tensors)
    filled = [(one, other) for one, other in pairs if len(tensors[one]) and len(tensors[other])]
    expected = not any(overlaps(tensors[one], tensors[other]) for one, other in filled)
    assert check.apart(*tensors) is expected
    assert check.apart(*tensors) is expected  # the addresses of the last call


def test_a_guard_names_both_inputs():
    compiled = thunder.jit(lambda x, y: x.add_(y.sum()))
    compiled(torch.ones(3), torch.ones(3))
    (entry,) = thunder.explain(compiled).entries
    assert "x: no overlap with y" in entry.guards
    memory = torch.ones(4)
    compiled(memory[:3], memory[1:])
    assert "y: shared memory with x" in thunder.explain(compiled).entries[-1].guards


@pytest.mark.parametrize("kind", ["sparse", "subclass", "meta"])
def test_tensors_without_addresses(kind):
    class Own(torch.Tensor):
        pass

    make = {
        "sparse": lambda: torch.eye(3).to_sparse(),
        "subclass": lambda: torch.ones(3).as_subclass(Own),
        "meta": lambda: torch.ones(3, device="meta"),
    }[kind]
    one, other = make(), make()
    check = OverlapCheck([(0, 1)], [one, other])
    assert check.apart(one, other)
    assert not check.apart(one, one)


def test_memory_that_meets_in_a_later_call_is_seen():
    def program(cache, x):
        cache.add_(1)
        return x * 2

    compiled = thunder.jit(program)
    for arguments in ((torch.zeros(4), torch.ones(4)), (torch.zeros(4), torch.ones(4))):
        assert torch.equal(compiled(*arguments), torch.full((4,), 2.0))
    memory = torch.zeros(4)
    assert compiled(memory, memory[:]).tolist() == [2.0] * 4
    assert memory.tolist() == [1.0] * 4
    assert compiled(torch.zeros(4), torch.ones(4)).tolist() == [2.0] * 4
    assert thunder.cache_misses(compiled) == 2


def prologue_lines(layers):
    module = torch.nn.Sequential(*[torch.nn.BatchNorm1d(4) for _ in range(layers)])
    compiled = thunder.jit(module)
    compiled(torch.randn(3, 4))
    return str(thunder.last_prologue_traces(compiled)[-1]).count("\n")


@pytest.mark.slow
def test_the_prologue_grows_with_the_layers_not_with_their_pairs():
    two, four, eight = map(prologue_lines, (2, 4, 8))
    assert eight - four <= 2 * (four - two) + 4


def test_addresses_of_the_last_call_are_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[list[int]] = []
    some_overlap = OverlapCheck._some_overlap

    def counted(self: OverlapCheck, starts: list[int], *others: Any) -> bool:
        compared.append(starts)
        return some_overlap(self, starts, *others)

    monkeypatch.setattr(OverlapCheck, "_some_overlap", counted)
    tensors, others = ([torch.ones(3), torch.ones(3)] for _ in range(2))
    check = OverlapCheck([(0, 1)], tensors)
    assert [check.apart(*call) for call in (tensors, tensors, others, others, tensors)] == [True] * 5
    assert len(compared) == 3

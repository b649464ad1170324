"""Inputs that share memory: Dynamo guards on objects, not on their memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamo_programs import MARKS

import thunder_plugin_dynamo

pytestmark = MARKS


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


def add_and_read(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return y * 2


def two_halves(overlap: bool) -> tuple[torch.Tensor, torch.Tensor]:
    memory = torch.arange(12.0)
    return (memory[:8], memory[2:10]) if overlap else (memory[:8], torch.arange(2.0, 10.0))


def run(function: Any, order: list[bool]) -> list[Any]:
    found: list[Any] = []
    for overlap in order:
        x, y = two_halves(overlap)
        found.append((function(x, y), x, y))
    return found


@pytest.mark.parametrize("order", [[True, False, True], [False, True, False]])
def test_what_shares_memory_may_change(order: list[bool]) -> None:
    compiled = torch.compile(add_and_read, backend="thunder", options={"executors": []})
    torch.testing.assert_close(run(compiled, order), run(add_and_read, order))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert (len(graph.compiled.entries), graph.compiled.cache_hits) == (2, 1)
    guards = {guard for entry in graph.compiled.entries for guard in entry.guards}
    assert guards == {"L_x_: shared memory with L_y_", "L_x_: no overlap with L_y_"}


def test_one_object_twice() -> None:
    compiled = torch.compile(add_and_read, backend="thunder", options={"executors": []})
    for same in (False, True, False):
        found = []
        for function in (compiled, add_and_read):
            x = torch.arange(4.0)
            y = x if same else torch.arange(4.0)
            found.append((function(x, y), x, y))
        torch.testing.assert_close(*found)


def test_a_view_of_another_offset() -> None:
    """Which part of its memory a view shows is not guarded, and need not be."""
    compiled = torch.compile(lambda x: x.as_strided((2, 2), (2, 1)) + x.sum(), backend="thunder")
    for start in (0, 3):
        x = torch.arange(16.0)[start : start + 4]
        torch.testing.assert_close(compiled(x), x.as_strided((2, 2), (2, 1)) + x.sum())


def test_nothing_is_checked_of_static_graphs() -> None:
    compiled = torch.compile(lambda x: x.sin() + 1, backend="thunder")
    compiled(torch.ones(3))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert graph.is_static
    assert graph.compiled.entries[0].guards == ()

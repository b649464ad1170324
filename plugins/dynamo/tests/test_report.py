"""The report on graphs and breaks."""

from __future__ import annotations

import gc

import pytest
import torch
from dynamo_programs import MARKS

from thunder_plugin_dynamo import report

pytestmark = MARKS


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


class Broken(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.layer(x))
        print(end="")
        z = y * 2
        return z + 1


@pytest.mark.slow
def test_graphs_and_breaks() -> None:
    module = Broken()
    compiled = torch.compile(module, backend="thunder", options={"executors": []})
    for _ in range(3):
        compiled(torch.randn(2, 4))
    found = report(compiled)
    first, second = found.graphs
    texts = [line.text for line in first.lines]
    assert texts == ["y = torch.relu(self.layer(x))"]
    assert [line.text for line in second.lines] == ["z = y * 2", "return z + 1"]
    assert (first.operations, second.operations) == (2, 2)
    assert all(graph.guards for graph in found.graphs)
    assert all(graph.compiled.cache_hits == 2 for graph in found.graphs)
    assert second.end is None
    assert found.breaks == (first.end,)
    assert first.end is not None
    assert first.end.location is not None
    assert first.end.location.text == 'print(end="")'
    text = str(found)
    assert text.startswith("Broken: 2 graphs, 1 graph breaks\ngraph 0/0 of forward: 2 operations, ")
    assert 'print(end="")' in text


def test_lines_of_traces_are_the_users() -> None:
    from thunder_plugin_dynamo.programs import programs

    compiled = torch.compile(Broken(), backend="thunder", options={"executors": []})
    compiled(torch.randn(2, 4))
    first, second = programs()
    assert [line.location.text for line in first.last.program.traces[0].symbols] == [
        "y = torch.relu(self.layer(x))"
    ] * 2
    assert [line.location.module for line in first.last.program.traces[0].symbols] == ["layer", ""]
    assert [line.location.text for line in second.last.program.traces[0].symbols] == ["z = y * 2", "return z + 1"]


def test_whose_graphs_they_are() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x.sin()

    module = Broken()
    x = torch.randn(2, 4)
    module.compile(backend="thunder")
    compiled = torch.compile(function, backend="thunder")
    assert str(report(compiled)).endswith("report() shows all")
    module(x), compiled(x)
    assert [graph.operations for graph in report(module).graphs] == [2, 2]
    assert report(compiled).graphs == report(function).graphs
    assert len(report().graphs) == 3
    assert report(torch.nn.Linear(1, 1)).graphs == ()


def test_graphs_that_dynamo_drops() -> None:
    compiled = torch.compile(lambda x: x.sin(), backend="thunder")
    compiled(torch.ones(2))
    assert len(report().graphs) == 1
    torch._dynamo.reset()
    assert report().graphs == ()


@pytest.mark.slow
def test_generated_lines_go_with_their_graph() -> None:
    from thunder_core.tracing import frames

    before = set(frames._generated)
    compiled = torch.compile(lambda x: x.sin(), backend="thunder")
    compiled(torch.ones(2))
    assert len(set(frames._generated) - before) == 1
    del compiled
    torch._dynamo.reset()
    gc.collect()
    assert set(frames._generated) <= before

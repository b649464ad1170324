"""Sizes and numbers that vary: with symbols from Dynamo, Thunder compiles one program for each tuple of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamo_programs import MARKS

import thunder_plugin_dynamo

pytestmark = MARKS

SHAPES = [(3, 4), (5, 4), (5, 6), (3, 4), (2, 8)]


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


def flat(x: torch.Tensor, factor: Any = 2) -> torch.Tensor:
    return x.reshape(-1)[: x.shape[0]] * x.shape[1] * factor


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.slow
def test_sizes(dynamic: bool | None, training: bool) -> None:
    compiled = torch.compile(flat, backend="thunder", dynamic=dynamic, options={"executors": []})
    for shape in SHAPES:
        x = torch.randn(shape, requires_grad=training)
        actual, expected = compiled(x), flat(x)
        torch.testing.assert_close(actual, expected)
        if training:
            torch.testing.assert_close(*[torch.autograd.grad(one.sum(), x) for one in (actual, expected)])
    graphs = thunder_plugin_dynamo.report(compiled).graphs
    if dynamic:
        assert sum(len(graph.compiled.entries) for graph in graphs) == len(set(SHAPES))
        (graph,) = graphs
        assert not graph.is_static
        assert graph.compiled.cache_hits == 1
        assert "one compilation for each combination" in str(graph)


def test_marked_sizes() -> None:
    compiled = torch.compile(flat, backend="thunder", options={"executors": []})
    for size in (3, 5, 7):
        x = torch.randn(size, 4)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), flat(x))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert len(graph.compiled.entries) == 3


@pytest.mark.parametrize("numbers", [[2, 3, 4, 3], [0.5, 0.25, 0.125, 0.25]])
def test_numbers(numbers: list[Any]) -> None:
    compiled = torch.compile(flat, backend="thunder", dynamic=True, options={"executors": []})
    x = torch.randn(3, 4)
    for number in numbers:
        torch.testing.assert_close(compiled(x, number), flat(x, number))


@pytest.mark.slow
def test_strides_under_dynamic_sizes() -> None:
    compiled = torch.compile(lambda x: x.stride()[0] + x.t() * 2, backend="thunder", dynamic=True)
    for x in (torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(8, 6)[::2], torch.randn(4, 12)[:, ::2]):
        torch.testing.assert_close(compiled(x), x.stride()[0] + x.t() * 2)


def test_beyond_the_limit_calls_run_eagerly() -> None:
    compiled = torch.compile(flat, backend="thunder", dynamic=True, options={"recompile_limit": 2})
    for size in range(2, 4):
        compiled(torch.randn(size, 4))
    x = torch.randn(9, 4)
    with pytest.warns(UserWarning, match=r"graph 0/0 of flat"):
        torch.testing.assert_close(compiled(x), flat(x))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert "run by eager PyTorch 1 times" in str(graph)

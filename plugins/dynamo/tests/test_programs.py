"""Programs through Dynamo, compared with eager PyTorch."""

from __future__ import annotations

import pytest
import torch
from dynamo_programs import MARKS, PROGRAMS, outcome

import thunder_plugin_dynamo

pytestmark = MARKS


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_program(name: str) -> None:
    check(name, training=True)


@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - {"reentrant_checkpoint"}))  # of which PyTorch warns
@pytest.mark.battery
def test_program_without_gradients(name: str) -> None:
    check(name, training=False)


def check(name: str, *, training: bool) -> None:
    """Compare with eager, and count the graphs' compilations."""
    program = PROGRAMS[name]
    compiled = torch.compile(program, backend="thunder", options={"executors": []})
    torch.testing.assert_close(outcome(compiled, 3, training), outcome(program, 3, training))
    graphs = thunder_plugin_dynamo.report(compiled).graphs
    assert graphs
    assert all(not graph.compiled.fallbacks for graph in graphs)
    # the second call finds gradients there, which Dynamo takes for another program in some cases
    assert all(len(graph.compiled.entries) == 1 for graph in graphs)


def test_graphs_of_inference() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.5)).eval()
    compiled, x = torch.compile(module, backend="thunder"), torch.randn(3, 4)
    for context in (torch.inference_mode, torch.no_grad):
        with context():
            torch.testing.assert_close(compiled(x), module(x))
    torch.testing.assert_close(compiled(x), module(x))
    assert compiled(x).requires_grad


def test_modes_that_change_between_calls() -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    compiled = torch.compile(module, backend="thunder")
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype):
            assert compiled(x).dtype == dtype
    assert compiled(x).dtype == torch.float32
    assert compiled(x.double().float()).requires_grad
    module.requires_grad_(False)
    assert not compiled(x).requires_grad
    module.double()
    assert compiled(x.double()).dtype == torch.float64


class Tagged(torch.Tensor):
    """A subclass that overrides nothing."""


def test_parameters_of_subclasses() -> None:
    module, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
    module.weight = torch.nn.Parameter(torch.randn(4, 4).as_subclass(Tagged))
    compiled = torch.compile(module, backend="thunder")
    for _ in range(2):
        actual, expected = compiled(x), module(x)
        assert type(actual) is type(expected)
        torch.testing.assert_close(actual, expected)
        pairs = [torch.autograd.grad(one.sum(), list(module.parameters())) for one in (actual, expected)]
        torch.testing.assert_close(*pairs)

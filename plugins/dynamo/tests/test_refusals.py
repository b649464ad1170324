"""What Thunder refuses of Dynamo's graphs: which graph it is, the user's line, and what to do."""

from __future__ import annotations

import pytest
import torch
from dynamo_programs import MARKS

import thunder
import thunder_plugin_dynamo
from thunder_core.errors import ConfigError, DataDependentError, UncacheableWarning

pytestmark = MARKS


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


def depends_on_values(x: torch.Tensor) -> torch.Tensor:
    y = x.sin()
    chosen = y[y > 0]
    return chosen * 2


def loops(x: torch.Tensor) -> torch.Tensor:
    return torch._higher_order_ops.while_loop(lambda y: y.sum() < 10, lambda y: (y * 2,), (x,))[0]


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_graph_that_depends_on_values() -> None:
    compiled = torch.compile(depends_on_values, backend="thunder", fullgraph=True)
    with pytest.raises(DataDependentError) as caught:
        compiled(torch.ones(3))
    message = str(caught.value)
    assert "in graph 0/0 of depends_on_values (" in message
    assert " of torch.compile" in message
    assert "in depends_on_values: chosen = y[y > 0]" in message
    assert "@torch.compiler.disable" in message
    assert "call thunder.jit" in message


def test_a_higher_order_operator() -> None:
    with pytest.raises(Exception, match="the higher-order operator 'while_loop'") as caught:
        torch.compile(loops, backend="thunder", fullgraph=True)(torch.ones(3))
    assert "call thunder.jit" in str(caught.value)


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True, suppress_errors=True)
def test_suppressed_errors() -> None:
    compiled, x = torch.compile(depends_on_values, backend="thunder"), torch.randn(5)
    actual = [compiled(x)]
    with pytest.warns(UncacheableWarning, match="is run by eager PyTorch.*suppress_errors is set"):
        actual.append(compiled(x))
    actual.append(compiled(x))
    torch.testing.assert_close(actual, [depends_on_values(x)] * 3)
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert sum(graph.compiled.fallbacks.values()) == 3


def test_a_break_instead() -> None:
    compiled, x = torch.compile(depends_on_values, backend="thunder"), torch.randn(5)
    torch.testing.assert_close(compiled(x), depends_on_values(x))


def test_the_front_end_is_for_graphs() -> None:
    with pytest.raises(thunder.OptionError, match=r"torch\.compile"):
        thunder.jit(torch.sin, front_end="dynamo")(torch.ones(2))


def test_sizes_are_declared_to_dynamo() -> None:
    with pytest.raises(ConfigError, match="the front end 'dynamo' takes no declarations of sizes"):
        thunder.jit(torch.sin, front_end="dynamo", dynamic={"input": {0: 4}})

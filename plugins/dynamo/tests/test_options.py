"""``mode`` and ``options`` of `torch.compile`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from dynamo_programs import MARKS

import thunder_plugin_dynamo
from thunder_testing.pointwise import Pointwise

pytestmark = MARKS
X = torch.linspace(-1, 1, 4)


@pytest.fixture(autouse=True)
def no_graphs_of_before() -> None:
    torch._dynamo.reset()


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x.sin() * 2 + 1)


def options_of(**arguments: Any) -> dict[str, object]:
    compiled = torch.compile(program, backend="thunder", **arguments)
    torch.testing.assert_close(compiled(X), program(X))
    return thunder_plugin_dynamo.report(compiled).graphs[-1].compiled.options


def refusal(**arguments: Any) -> str:
    with pytest.raises(Exception, match="backend='thunder' raised") as caught:
        torch.compile(program, backend="thunder", **arguments)(X)
    return str(caught.value)


def test_the_backend_is_listed() -> None:
    assert "thunder" in torch.compiler.list_backends()


def test_executors() -> None:
    compiled = torch.compile(program, backend="thunder", options={"executors": [Pointwise()]}, fullgraph=True)
    torch.testing.assert_close(compiled(X), program(X))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert "pointwise" in graph.compiled.entries[0].executors


@pytest.mark.needs_compiler
def test_inductor_by_name() -> None:
    compiled = torch.compile(program, backend="thunder", options={"executors": ["inductor"]})
    torch.testing.assert_close(compiled(X), program(X))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert "inductor" in graph.compiled.entries[0].executors


def test_options_are_those_of_jit() -> None:
    found = options_of(options={"recompute": "none", "recompile_limit": 3, "executors": []})
    assert (found["recompute"], found["recompile_limit"], found["front_end"]) == ("none", 3, "dynamo")
    assert options_of(options={"config": {"recompile_limit": 7}})["recompile_limit"] == 7


def test_a_mode_is_a_configuration(tmp_path: Any) -> None:
    assert options_of(mode="reference")["executors"] == options_of(options={"config": "reference"})["executors"]
    path = tmp_path / "mine.yaml"
    path.write_text("recompile_limit: 5\n")
    assert options_of(mode=str(path))["recompile_limit"] == 5


def test_without_a_cache_each_call_compiles() -> None:
    compiled = torch.compile(program, backend="thunder", options={"cache": "no caching"})
    for _ in range(2):
        torch.testing.assert_close(compiled(X), program(X))
    (graph,) = thunder_plugin_dynamo.report(compiled).graphs
    assert graph.compiled.cache_misses == 2


def test_unknown_options() -> None:
    assert "executor: unknown option; did you mean 'executors'?" in refusal(options={"executor": []})
    assert "did you mean 'inductor'?" in refusal(options={"executors": ["inducter"]})
    assert "did you mean 'reference'?" in refusal(mode="referense")
    assert "front_end: the backend records graphs of torch.compile with its front end" in refusal(
        options={"front_end": "run"}
    )


@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_of_inductor(mode: str) -> None:
    message = refusal(mode=mode)
    assert f"mode={mode!r} is a mode of PyTorch's own backend" in message
    assert "write options=" in message


def test_called_by_hand() -> None:
    """As by tools that make graphs without Dynamo."""
    graph = torch.fx.symbolic_trace(program)
    run = thunder_plugin_dynamo.thunder(graph, [X], name="by hand")
    torch.testing.assert_close(run(X), program(X))
    wide = torch.randn(2, 3)
    torch.testing.assert_close(run(wide), program(wide))  # nobody guards its sizes, so Thunder does
    assert [graph.name for graph in thunder_plugin_dynamo.report().graphs] == ["by hand, graph None"]

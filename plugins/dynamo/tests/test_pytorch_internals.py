"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from dynamo_programs import MARKS

import thunder_plugin_dynamo
from thunder_plugin_dynamo.graph import owner_of
from thunder_plugin_dynamo.pytorch_internals import NAMES, FrameAction, FrameExecStrategy
from thunder_testing import private_names_suite

pytestmark = MARKS


def higher_order(kind: Any) -> None:
    assert isinstance(torch.ops.higher_order.tag_activation_checkpoint, kind)
    assert torch.ops.higher_order.tag_activation_checkpoint.name() == "tag_activation_checkpoint"
    assert torch.ops.higher_order.invoke_subgraph.name() == "invoke_subgraph"


def autocast_calls(function: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    assert function in [node.target for node in _graph_of(program).graph.nodes]


def data_attribute(function: Any) -> None:
    assert function in [node.target for node in _graph_of(lambda x: x.sin().data.mul_(2)).graph.nodes]


def _graph_of(program: Callable[..., Any]) -> Any:
    found: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch.compile(program, backend=backend)(torch.ones(2, 2))
    return found[0]


def dynamo_config(config: Any) -> None:
    assert config.suppress_errors is False


def compile_context(context: Any) -> None:
    found: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(str(context.current_compile_id()))
        return graph.forward

    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert found == ["0/0"]
    assert context.current_compile_id() is None


def innermost(function: Any) -> None:
    assert function(torch.compile(_plus_one, backend="eager")) is _plus_one


def original_module(read: Any) -> None:
    module = torch.nn.ReLU()
    compiled = torch.compile(module, backend="eager")
    assert read(compiled) is module


def _plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def compilation_metrics(function: Any) -> None:
    torch._dynamo.reset()
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert (function()[-1].compile_id, function()[-1].guard_count > 0) == ("0/0", True)


def exec_strategy(function: Any) -> None:
    def skipped(x: torch.Tensor) -> torch.Tensor:
        return _plus_one(x)

    compiled: list[Any] = []
    function(skipped.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))
    torch._dynamo.reset()
    torch.compile(skipped, backend=lambda graph, inputs: compiled.append(graph) or graph.forward)(torch.ones(2))
    assert compiled == []


CHECKS: dict[str, Callable[..., object]] = {
    "HigherOrderOperator": higher_order,
    "enter_autocast": autocast_calls,
    "exit_autocast": autocast_calls,
    "get_data_attr": data_attribute,
    "dynamo_config": dynamo_config,
    "set_code_exec_strategy": exec_strategy,
    "FrameAction": lambda kind: kind.SKIP,
    "FrameExecStrategy": lambda kind: kind(FrameAction.SKIP, FrameAction.SKIP),
    "CompileContext": compile_context,
    "innermost_fn": innermost,
    "OptimizedModule": lambda kind: isinstance(torch.compile(torch.nn.ReLU(), backend="eager"), kind),
    "orig_mod": original_module,
    "get_compilation_metrics": compilation_metrics,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_dynamo.__file__).parent])


@pytest.mark.parametrize("kind", ["function", "module"])
def test_the_frame_of_dynamos_wrapper_has_what_is_compiled(kind: str) -> None:
    found: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_name != "compile_wrapper":
            assert frame.f_back is not None
            frame = frame.f_back
        found.append(frame.f_locals["fn"])
        return graph.forward

    torch._dynamo.reset()
    program = _plus_one if kind == "function" else torch.nn.ReLU()
    torch.compile(program, backend=backend)(torch.ones(2))
    assert owner_of(found[0]) is program


def test_what_graphs_say() -> None:
    graph = _graph_of(lambda x: x.sin())
    assert graph.compile_subgraph_reason.graph_break is False
    nodes = {node.op: node for node in graph.graph.nodes}
    assert isinstance(nodes["placeholder"].meta["example_value"], torch.Tensor)
    assert __file__ in nodes["call_method"].stack_trace

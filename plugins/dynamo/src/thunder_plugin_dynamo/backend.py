"""The backend of `torch.compile`, which Dynamo calls with each graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from thunder_core.errors import OptionError
from thunder_plugin_dynamo.graph import Graph
from thunder_plugin_dynamo.numbers_as_tensors import with_numbers
from thunder_plugin_dynamo.programs import forget_programs, remember
from thunder_plugin_dynamo.skipped_frames import skip_backward

_INSTEAD: Final = {
    "reduce-overhead": 'options={"transforms": ["cudagraphs"]}',
    "max-autotune": 'options={"executors": ["inductor"]}, with options of the executor that tune',
    "max-autotune-no-cudagraphs": 'options={"executors": ["inductor"]}, with options of the executor that tune',
}
"""Replacements of the modes of PyTorch's backend."""

_ADVICE: Final = ("torch.compile(model, backend='thunder', options={...}) takes the options of thunder.jit",)


def thunder(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo; called by ``torch.compile(model, backend="thunder")``.

    The graph is recorded and compiled in its first call. Dynamo has then checked its assumptions about the graph's
    inputs, so Thunder only checks attributes of PyTorch's modules and, if the graph writes to inputs, which of them
    share memory. A graph with symbolic sizes or numbers is compiled for each combination of their values, with all of
    Thunder's guards.

    Args:
        graph_module: the graph. Calls that only PyTorch's compiler supports are replaced in it.
        example_inputs: its example inputs; not used.
        mode: the name of a preset or the path of a file, like ``config`` of `thunder.jit`; ``mode=`` of
            `torch.compile`.
        options: options of `thunder.jit`; ``options=`` of `torch.compile`.
        name: name of the region for reports, ``name=`` of `torch.compile` in PyTorch 2.15.

    Returns:
        The replacement of the graph for Dynamo: a compiled function, as `thunder.jit` returns it.

    Raises:
        ConfigError: an option is unknown (with the nearest name), or its value is invalid.
        PluginError: a configured executor or transform cannot be used.
        UnsupportedError: the graph has an operation that Thunder cannot record.
    """
    import thunder as _thunder  # here, so that the lookup of the backend is fast

    given = _given(mode, options)
    graph = Graph(graph_module, name)
    skip_backward()
    program = remember(_thunder.jit(graph, front_end="dynamo", **given))
    return with_numbers(program, graph.numbers)


def _given(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of `thunder.jit`."""
    if mode in _INSTEAD:
        raise OptionError(
            f"mode={mode!r} is a mode of PyTorch's own backend; the backend 'thunder' expects the name of a preset",
            advice=(f"write {_INSTEAD[mode]}",),
        )
    given = dict(options or {})
    if "front_end" in given:
        raise OptionError("front_end: the backend records graphs of torch.compile with its front end", advice=_ADVICE)
    if mode is not None:
        given["config"] = mode
    return given


thunder.reset = forget_programs  # type: ignore[attr-defined]  # `torch._dynamo.reset` calls it

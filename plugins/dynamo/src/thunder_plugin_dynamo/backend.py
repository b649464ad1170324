"""The backend of `torch.compile`: what Dynamo calls with each graph that it finds."""

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
"""What to write instead of the modes of PyTorch's own backend."""

_ADVICE: Final = ("torch.compile(model, backend='thunder', options={...}) takes the options of thunder.jit",)


def thunder(
    graph_module: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Compile one graph of Dynamo's: ``torch.compile(model, backend="thunder")`` calls this.

    The graph is recorded and compiled when it is first called. Dynamo has checked then what the graph is right for, so
    Thunder checks PyTorch's modes, and which inputs share memory if the graph writes to some, and nothing else. A graph
    with symbolic sizes or numbers is compiled once for each tuple of them, with all of Thunder's guards.

    Args:
        graph_module: what Dynamo found. Calls that only PyTorch's own compiler understands are replaced in it.
        example_inputs: its inputs in the call that it was found in; not used.
        mode: the name of a preset or the path of a file, as ``config`` of `thunder.jit`; ``mode=`` of `torch.compile`.
        options: options of `thunder.jit`; ``options=`` of `torch.compile`.
        name: of the region, ``name=`` of `torch.compile` in PyTorch 2.15; for reports.

    Returns:
        What Dynamo calls instead of the graph: a compiled function, as `thunder.jit` returns it.

    Raises:
        ConfigError: an unknown option, with the nearest name, or a value that is not accepted.
        PluginError: an executor or transform that is named cannot be used.
        UnsupportedError: an operation in the graph that Thunder cannot record.
    """
    import thunder as _thunder  # here: looking the backend up costs nothing

    given = _given(mode, options)
    graph = Graph(graph_module, name)
    skip_backward()
    program = remember(_thunder.jit(graph, front_end="dynamo", **given))
    return with_numbers(program, graph.numbers)


def _given(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of `thunder.jit`."""
    if mode in _INSTEAD:
        raise OptionError(
            f"mode={mode!r} is a mode of PyTorch's own backend; the backend 'thunder' takes the name of a preset",
            advice=(f"write {_INSTEAD[mode]}",),
        )
    given = dict(options or {})
    if "front_end" in given:
        raise OptionError("front_end: graphs of torch.compile are recorded by the backend's own", advice=_ADVICE)
    if mode is not None:
        given["config"] = mode
    return given


thunder.reset = forget_programs  # type: ignore[attr-defined]  # `torch._dynamo.reset` calls it

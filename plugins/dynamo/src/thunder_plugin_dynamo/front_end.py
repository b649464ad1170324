"""The front end ``dynamo``: records the graphs that the backend is called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from thunder_core.acquire.acquire import Acquired, acquire
from thunder_core.acquire.module_calls import EagerCallNeeded
from thunder_core.errors import AcquisitionError, OptionError
from thunder_plugin_dynamo.graph import Graph
from thunder_plugin_dynamo.pytorch_internals import dynamo_config


def record(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Acquired:
    """Record a graph. Where its sizes and numbers are constants, no guards are needed but for shared memory.

    Dynamo checks before each call the class, dtype, device, sizes, strides and ``requires_grad`` of the graph's inputs,
    that no two are one object, and all that its Python code read. It does not check which of them share memory. Where
    sizes or numbers are symbolic they may vary from call to call, and Thunder checks everything.

    Args:
        function: a `Graph`.

    Raises:
        AcquisitionError: as `acquire`; the message says which graph it is.
        OptionError: ``function`` is no graph.
        EagerCallNeeded: the graph cannot be recorded, and ``torch._dynamo.config.suppress_errors`` is set.
    """
    if not isinstance(function, Graph):
        raise OptionError(
            "the front end 'dynamo' records graphs of torch.compile alone",
            advice=(
                "torch.compile(f, backend='thunder') makes them",
                "leave front_end out to record the program itself",
            ),
        )
    if function.refused:
        raise EagerCallNeeded(function.refused)
    try:
        acquired = acquire(function.module.forward, args, kwargs)
    except AcquisitionError as error:
        if not dynamo_config.suppress_errors:
            raise _with_graph(error, function) from error
        function.refused = f"torch._dynamo.config.suppress_errors is set, and {error.problem}"
        raise EagerCallNeeded(function.refused) from error
    return replace(acquired, guarded=function.is_static)


def _with_graph(error: AcquisitionError, graph: Graph) -> AcquisitionError:
    advice = (
        "put it into a function of @torch.compiler.disable: Dynamo then breaks the graph there",
        "torch._dynamo.config.suppress_errors = True runs such graphs eagerly, with a warning",
        "call thunder.jit on the function or module itself, which needs no graphs",
    )
    problem = f"{error.problem}, in {graph.place()}, which torch.compile handed over"
    return type(error)(problem, location=error.location, advice=(*error.advice, *advice))

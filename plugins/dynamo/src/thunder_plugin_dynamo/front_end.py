"""The front end ``dynamo``: records the graphs of the backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from thunder_core.contract import Recording, Request
from thunder_core.errors import AcquisitionError, OptionError, RunEagerly
from thunder_frontend.record.front_end import front_end as python
from thunder_plugin_dynamo.graph import Graph
from thunder_plugin_dynamo.pytorch_internals import dynamo_config


@dataclass(frozen=True)
class GraphFrontEnd:
    """Records the graphs of the backend, and nothing else."""

    def record(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request
    ) -> Recording:
        """Record a graph. If its sizes and numbers are constants, the only guards are those for shared memory.

        Before each call Dynamo checks the class, dtype, device, sizes, strides and ``requires_grad`` of the graph's
        inputs, that they are different objects, and all state that its Python code read. It does not check which inputs
        share memory. Symbolic sizes or numbers may vary between calls, and Thunder checks everything.

        Args:
            function: a `Graph`.
            request: only the support of wrapper subclasses matters.

        Raises:
            AcquisitionError: as for `PythonFrontEnd.record`; the message identifies the graph.
            OptionError: ``function`` is not a graph.
            RunEagerly: the graph cannot be recorded, and ``torch._dynamo.config.suppress_errors`` is set.
        """
        if not isinstance(function, Graph):
            raise OptionError(
                "the front end 'dynamo' only records graphs of torch.compile",
                advice=(
                    "use torch.compile(f, backend='thunder')",
                    "omit front_end to record the program itself",
                ),
            )
        if function.refused:
            raise RunEagerly(function.refused)
        try:
            recording = python.record(
                function.module.forward, args, kwargs, Request(wrapper_classes=request.wrapper_classes)
            )
        except AcquisitionError as error:
            if not dynamo_config.suppress_errors:
                raise _with_graph(error, function) from error
            function.refused = f"torch._dynamo.config.suppress_errors is set, and {error.problem}"
            raise RunEagerly(function.refused) from error
        return replace(recording, checked_by_caller=function.is_static)


def _with_graph(error: AcquisitionError, graph: Graph) -> AcquisitionError:
    advice = (
        "move it to a function with @torch.compiler.disable, which breaks the graph",
        "torch._dynamo.config.suppress_errors = True runs such graphs eagerly, with a warning",
        "call thunder.jit on the function or module itself, without Dynamo",
    )
    problem = f"{error.problem}, in {graph.place()} of torch.compile"
    return type(error)(problem, location=error.location, advice=(*error.advice, *advice))


front_end: Final = GraphFrontEnd()

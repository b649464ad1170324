"""Reports on the graphs of a program: their ends, and their compilations by Thunder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder.report.compile_report import CompileReport, compile_report
from thunder_core.ir.location import SourceLocation, one_line
from thunder_plugin_dynamo.graph import Graph, owner_of
from thunder_plugin_dynamo.programs import programs
from thunder_plugin_dynamo.pytorch_internals import OptimizedModule, get_compilation_metrics, innermost_fn, orig_mod


@dataclass(frozen=True)
class GraphBreak:
    """A graph break.

    Attributes:
        reason: Dynamo's reason.
        location: the user's source line; None if it is unknown.
    """

    reason: str
    location: SourceLocation | None

    def __str__(self) -> str:
        where = f" at {self.location.describe()}" if self.location is not None else ""
        return f"break{where}: {one_line(self.reason.strip().partition(chr(10))[0])}"


@dataclass(frozen=True)
class GraphReport:
    """A graph.

    Attributes:
        name: Dynamo's ID of the frame, as in its logs, and the function.
        lines: the user's source lines in it, in order, without duplicates.
        operations: number of calls in it.
        guards: number of guards that Dynamo checks before it; None if it is unknown.
        is_static: whether sizes and numbers are constants. Otherwise Thunder compiles a program for each combination.
        end: the graph break at its end; None if it ends with its frame.
        compiled: Thunder's compilations of it, from `thunder.explain`.
    """

    name: str
    lines: tuple[SourceLocation, ...]
    operations: int
    guards: int | None
    is_static: bool
    end: GraphBreak | None
    compiled: CompileReport

    def __str__(self) -> str:
        counts = [f"{self.operations} operations"]
        counts += [f"{self.guards} guards of Dynamo"] if self.guards is not None else []
        counts += [f"{len(self.compiled.entries)} compilations, {self.compiled.cache_hits} cache hits"]
        counts += [] if self.is_static else ["symbolic sizes or numbers, one compilation for each combination"]
        text = [f"{self.name}: {', '.join(counts)}"]
        text += [f"  {line.describe()}" for line in self.lines]
        for reason, count in self.compiled.fallbacks.items():
            text.append(f"  run by eager PyTorch {count} times: {reason}")
        return "\n".join([*text, *([f"  {self.end}"] if self.end is not None else [])])


@dataclass(frozen=True)
class DynamoReport:
    """The graphs of one program, or of all. Prints as text.

    Attributes:
        name: the program.
        graphs: oldest first.
    """

    name: str
    graphs: tuple[GraphReport, ...]

    @property
    def breaks(self) -> tuple[GraphBreak, ...]:
        """The graph breaks."""
        return tuple(graph.end for graph in self.graphs if graph.end is not None)

    def __str__(self) -> str:
        if not self.graphs:
            return (
                f"{self.name}: no graphs. It has not been called, or Dynamo uses the graphs of another function or "
                "module with the same code: report() shows all"
            )
        head = f"{self.name}: {len(self.graphs)} graphs, {len(self.breaks)} graph breaks"
        return "\n".join([head, *[str(graph) for graph in self.graphs]])


def report(program: Any = None) -> DynamoReport:
    """The graphs of a program, and their compilations by Thunder.

    Args:
        program: a function or module, or the result of ``torch.compile(..., backend="thunder")`` for it. The report
            covers all of its graphs, with any options, except those that Dynamo has dropped. None: the graphs of all
            programs.
    """
    wanted = None if program is None else _given(program)
    selected = [one for one in programs() if wanted is None or one.function.program is wanted]
    name = getattr(wanted, "__qualname__", type(wanted).__qualname__) if wanted is not None else "all programs"
    guards = {one.compile_id: one.guard_count for one in get_compilation_metrics()}
    return DynamoReport(name, tuple([_graph_report(one, guards) for one in selected]))


def _given(program: Any) -> Any:
    """The function or module that was passed to `torch.compile`."""
    if isinstance(program, OptimizedModule):
        return orig_mod(program)
    return owner_of(innermost_fn(program))


def _graph_report(program: Any, guards: dict[str | None, int | None]) -> GraphReport:
    graph: Graph = program.function
    end = graph.end
    return GraphReport(
        graph.__qualname__,
        graph.lines,
        graph.operations,
        guards.get(graph.compile_id),
        graph.is_static,
        _graph_break(end) if end is not None and end.graph_break else None,
        compile_report(program),
    )


def _graph_break(end: Any) -> GraphBreak:
    stack = end.user_stack
    location = SourceLocation(stack[-1].filename, stack[-1].lineno, stack[-1].name) if stack else None
    return GraphBreak(end.reason, location)

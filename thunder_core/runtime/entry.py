"""A compiled program for one set of guards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from thunder_core.acquire.rebuild import Recipe
from thunder_core.guards.prologue import Prologue
from thunder_core.ir.program import compile_source
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalized,
    ResultSource,
)
from thunder_core.report.compile_report import EntryReport
from thunder_core.report.decisions import LineDecisions
from thunder_core.runtime.decisions import Assignments, decisions_of


@dataclass(frozen=True, eq=False)
class Entry:
    """What runs when the guards hold.

    Attributes:
        prologue: checks the guards and finds the inputs.
        run: ``run(inputs, args, kwargs)`` computes, writes back and returns the program's result.
        traces: the program at each stage, as acquired first, as executed last.
        backward_traces: its backward, as joint trace first, as executed last; empty for a program without gradients.
        epilogue: copies into mutated inputs, as a trace; None when there are none.
        made: how it was made, without the decisions.
        assignments: who runs which line, by program.
        constants: values of the acquired program's inputs that are the same in every run, by name.
        random_states: generators outside of PyTorch that the program consumed; such an entry is not reused.
        notes: what transforms say for the report.
        unclaimed: composites that the program spells out, as it still does.
    """

    prologue: Prologue
    run: Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]
    traces: tuple[Trace, ...]
    backward_traces: tuple[Trace, ...]
    epilogue: Trace | None
    made: EntryReport
    assignments: Assignments
    constants: dict[str, Any]
    random_states: tuple[str, ...]
    notes: list[object]
    unclaimed: tuple[Assignment, ...] = ()

    @property
    def report(self) -> EntryReport:
        """How it was made, who runs which line, and what transforms say by now."""
        return replace(self.made, decisions=self._decisions, notes=tuple(map(str, self.notes)))

    @cached_property
    def _decisions(self) -> tuple[LineDecisions, ...]:
        # counting what lines do takes a while: it waits to be asked for
        return decisions_of(self.assignments, self.unclaimed)


def build_run(
    computation: Callable[..., Any], epilogue: Callable[..., Any] | None, functional: Functionalized, recipe: Recipe
) -> Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]:
    """One generated function: computation, epilogue, then the recipe's statements."""
    lines = ["def run(inputs, args, kwargs):", "    values = computation(*inputs)"]
    if epilogue is not None:
        arguments = ", ".join(_result(argument) for argument in functional.epilogue_arguments)
        lines.append(f"    after = epilogue({arguments})")
    lines.extend(f"    o{index} = {_result(source)}" for index, source in enumerate(functional.results))
    lines.extend(f"    {line}" for line in recipe.lines)
    lines.append(f"    return {recipe.result}")
    namespace = {**recipe.namespace, "computation": computation, "epilogue": epilogue}
    return compile_source("\n".join(lines) + "\n", "run", namespace, title="run")


def _result(source: ResultSource) -> str:
    if isinstance(source, FromInput):
        return f"inputs[{source.index}]"
    if isinstance(source, FromComputation):
        return f"values[{source.index}]"
    if isinstance(source, FromEpilogue):
        return f"after[{source.index}]"
    return repr(source.value)

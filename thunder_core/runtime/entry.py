"""A compiled program for one set of guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from thunder_core.acquire.raised import note
from thunder_core.acquire.reconstruction import Reconstruction
from thunder_core.executors.executor import Executor
from thunder_core.guards.prologue import Prologue
from thunder_core.ir.program import compile_source
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment
from thunder_core.passes.base import Phase
from thunder_core.passes.functionalize.result import (
    FromComputation,
    FromEpilogue,
    FromInput,
    Functionalized,
    ResultSource,
)
from thunder_core.passes.transform import Transform
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass
from thunder_core.report.collectives_report import CollectiveReport
from thunder_core.report.compile_report import EntryReport, StageReport
from thunder_core.report.decisions import LineDecisions
from thunder_core.runtime.collectives import collectives_of_programs
from thunder_core.runtime.decisions import Assignments, decisions_of, lines_of
from thunder_core.runtime.outcomes import Guess
from thunder_core.tracing.sizes import Sizes


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
        later: stages of programs that were made after the compilation, when a call first needed them.
        checks: what it cost so far to check, in first runs, what executors return.
        unclaimed: as in `thunder_core.runtime.transform.Program`.
        once: classes of objects that it returns or stores and that cannot be copied; such an entry is not reused.
        unfit: the guard that does not hold for the call that the entry was compiled for; such an entry is not reused.
        executors: those that were asked, in order.
        transforms: those that ran.
        raises: its run raises an exception that this one call led to; such an entry is not kept.
        sizes: the symbols that its traces print; None where all sizes are constants.
        guesses: values of tensors that its run checks; it raises `thunder_core.errors.WrongGuess` for others.
        groups: ranks of the process groups that it communicates in, by name.
        keeps_numbers: numbers that the program reads from tensors are numbers of its traces.
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
    later: list[StageReport]
    checks: ResultChecks
    unclaimed: tuple[Assignment, ...] = ()
    once: tuple[str, ...] = ()
    unfit: str | None = None
    executors: tuple[Executor, ...] = ()
    transforms: tuple[Transform, ...] = ()
    raises: bool = False
    sizes: Sizes | None = None
    guesses: tuple[Guess, ...] = ()
    keeps_numbers: bool = True
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def symbols(self, inputs: tuple[Any, ...]) -> tuple[int, ...]:
        """What the symbols are in a call with these inputs."""
        return () if self.sizes is None else inputs[len(inputs) - len(self.sizes.hints) :]

    @property
    def varies(self) -> bool:
        """Whether sizes of inputs, or numbers, vary between the calls that it serves."""
        return self.sizes is not None and bool(self.sizes.hints)

    @property
    def report(self) -> EntryReport:
        """How it was made, who runs which line, what transforms say by now, and which patterns match no line."""
        stages = (*self.made.stages, *self.later)
        if self.checks.lines:
            stages += (StageReport("checks of results", self.checks.seconds, self.checks.lines),)
        notes = (*map(str, self.notes), *self._unmatched_patterns)
        collectives = self._collectives
        return replace(self.made, stages=stages, decisions=self._decisions, notes=notes, collectives=collectives)

    @cached_property
    def _decisions(self) -> tuple[LineDecisions, ...]:
        # counting what lines do takes a while: it waits to be asked for
        return decisions_of(self.assignments, self.unclaimed)

    @cached_property
    def _collectives(self) -> tuple[CollectiveReport, ...]:
        return collectives_of_programs(self.executed, self.groups) if self.groups else ()

    @property
    def executed(self) -> dict[Phase, Trace]:
        """The programs that run: that of inference, or forward and backward."""
        return executed_programs(self.traces, self.backward_traces)

    @cached_property
    def _unmatched_patterns(self) -> tuple[str, ...]:
        lines = list(lines_of((*self.traces, *self.backward_traces), self.assignments, self.unclaimed))
        executed = [line for trace in (*self.traces[-1:], *self.backward_traces[-1:]) for line in trace.symbols]
        asked = ((self.executors, lines), (self.transforms, executed))
        return tuple([note for parts, found in asked for part in parts for note in part.unmatched(found)])


def executed_programs(traces: Sequence[Trace], backward_traces: Sequence[Trace]) -> dict[Phase, Trace]:
    """The last stage of a program: that of inference, or of forward and backward."""
    if not backward_traces:
        return {Phase.INFERENCE: traces[-1]}
    return {Phase.FORWARD: traces[-1], Phase.BACKWARD: backward_traces[-1]}


def build_run(
    computation: Callable[..., Any],
    epilogue: Callable[..., Any] | None,
    functional: Functionalized,
    reconstruction: Reconstruction,
    plain: bool = False,
    sizes: Mapping[str, int] | None = None,
    varying: bool = False,
    defined: Mapping[str, int] | None = None,
) -> Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]:
    """One generated function: computation, epilogue, then the reconstruction's statements.

    Args:
        plain: inputs are of classes with a ``__torch_function__``, which has been recorded and must not act again.
        sizes: the symbols for sizes, with the values that they had when the program was recorded.
        varying: whether these sizes vary; they are the last inputs then.
        defined: the symbols that lines of the computation define, each with its position among the results.
    """
    names = tuple(sizes or ())
    lines = ["def run(inputs, args, kwargs):", "    values = computation(*inputs)"]
    if epilogue is not None or reconstruction.writes:  # these come last
        lines[1:] = [
            "    try:",
            f"    {lines[1]}",
            "    except Exception as failure:",
            "        note(failure, 'a line of the compiled program raised it')",
            "        raise",
        ]
    lines.extend(f"    {name} = {_result(functional.results[place])}" for name, place in (defined or {}).items())
    if epilogue is not None:
        taken = (*(names if varying else ()), *(defined or ()))
        arguments = ", ".join([*[_result(argument) for argument in functional.epilogue_arguments], *taken])
        lines.append(f"    after = epilogue({arguments})")
    if sizes and varying:
        lines.insert(1, f"    {', '.join(names)}, = inputs[{-len(names)}:]")
    elif sizes:
        lines.insert(1, f"    {', '.join(names)}, = {tuple(sizes.values())}")
    if plain:
        lines[1:] = ["    with plain():", *[f"    {line}" for line in lines[1:]]]
    lines.extend(f"    o{index} = {_result(source)}" for index, source in enumerate(functional.results))
    lines.extend(f"    {line}" for line in reconstruction.lines)
    lines.append(f"    return {reconstruction.result}")
    namespace = {**reconstruction.namespace, "computation": computation, "epilogue": epilogue, "note": note}
    namespace["plain"] = DisableTorchFunctionSubclass
    return compile_source("\n".join(lines) + "\n", "run", namespace, title="run")


def _result(source: ResultSource) -> str:
    if isinstance(source, FromInput):
        return f"inputs[{source.index}]"
    if isinstance(source, FromComputation):
        return f"values[{source.index}]"
    if isinstance(source, FromEpilogue):
        return f"after[{source.index}]"
    return repr(source.value)

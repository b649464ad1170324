"""Cache entries: compiled programs, each for one set of guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from thunder_core.executors.executor import Executor
from thunder_core.guards.prologue import Prologue
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.passes.transform import Transform
from thunder_core.report.collectives_report import CollectiveReport
from thunder_core.report.compile_report import EntryReport, StageReport
from thunder_core.report.decisions import OpDecisions, decisions_of
from thunder_core.runtime.guesses import Guess
from thunder_core.runtime.transform import ExecutableProgram
from thunder_core.tracing.sizes import Sizes


@dataclass(frozen=True, eq=False)
class CacheEntry:
    """A compiled program for calls for which the guards of its prologue hold.

    Attributes:
        prologue: checks the guards and returns the inputs.
        run: ``run(inputs, args, kwargs)`` computes, performs the writes, and returns the program's result.
        program: its traces, and the decisions of executors.
        base_report: the report of its compilation, without decisions, notes and collectives.
        checks: the cost so far of comparing results of executors with the trace in first runs.
        constants: values of inputs of the acquired program that are equal in every run, by name.
        random_states: generators outside of PyTorch that the program consumed. Such an entry is not cached.
        uncopied: classes of objects that it returns or stores and that cannot be copied. Such an entry is not cached.
        unfit: the guard that does not hold for the call of the compilation. Such an entry is not cached.
        executors: the executors, in order.
        transforms: the transforms, in order.
        raised: the exception with which the recorded program ended, and which ``run`` raises. Such an entry is not
            cached.
        sizes: the symbols in its traces; None if all sizes are constants.
        guesses: the values of tensors that ``run`` checks; for others it raises `thunder_core.errors.WrongGuess`.
        traces_numbers: whether numbers that the program reads from tensors are numbers of its traces.
        groups: the ranks of the process groups that it communicates in, by name.
    """

    prologue: Prologue
    run: Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]
    program: ExecutableProgram
    base_report: EntryReport
    checks: ResultChecks
    constants: dict[str, Any]
    random_states: tuple[str, ...]
    uncopied: tuple[str, ...]
    unfit: str | None
    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...]
    raised: Exception | None
    sizes: Sizes | None
    guesses: tuple[Guess, ...]
    traces_numbers: bool
    groups: Mapping[str, tuple[int, ...]]

    def symbols(self, inputs: tuple[Any, ...]) -> tuple[int, ...]:
        """The values of the symbols in a call with these inputs."""
        return () if self.sizes is None else inputs[len(inputs) - len(self.sizes.hints) :]

    @property
    def varies(self) -> bool:
        """Whether sizes of inputs, or numbers, vary between the calls that it serves."""
        return self.sizes is not None and bool(self.sizes.hints)

    @property
    def report(self) -> EntryReport:
        """The report of the compilation, with decisions, notes of transforms, unmatched patterns and collectives."""
        stages = (*self.base_report.stages, *self.program.later)
        if self.checks.lines:
            stages += (StageReport("checks of results", self.checks.seconds, self.checks.lines),)
        notes = (*map(str, self.program.notes), *self._unmatched_patterns)
        return replace(
            self.base_report, stages=stages, decisions=self._decisions, notes=notes, collectives=self._collectives
        )

    @cached_property
    def _decisions(self) -> tuple[OpDecisions, ...]:
        # computed when the report is requested, because counting operations is slow
        return decisions_of(self.program.assignments, self.program.unclaimed)

    @cached_property
    def _collectives(self) -> tuple[CollectiveReport, ...]:
        if not self.groups:
            return ()
        executed = self.program.executed
        return tuple([row for each in self.transforms for row in each.collectives(executed, self.groups)])

    @cached_property
    def _unmatched_patterns(self) -> tuple[str, ...]:
        program = self.program
        ops = program.all_ops()
        executed = [op for trace in program.executed.values() for op in trace.symbols]
        notes = [note for executor in self.executors for note in executor.unmatched(ops)]
        return tuple(notes + [note for transform in self.transforms for note in transform.unmatched(executed)])

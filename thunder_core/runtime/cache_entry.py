"""Cache entries: compiled programs, each for one set of guards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder_core.checks.prologue import Prologue
from thunder_core.checks.source import Source
from thunder_core.contract import Reconstruction, Retry
from thunder_core.executors.executor import Executor
from thunder_core.ir.result_checks import ResultChecks
from thunder_core.passes.pass_manager import StageReport
from thunder_core.passes.transform import Transform
from thunder_core.runtime.guesses import Guess
from thunder_core.runtime.sizes_report import SizesReport
from thunder_core.runtime.transform import ExecutableProgram
from thunder_core.settings import PresetChoice
from thunder_core.tracing.sizes import Sizes


@dataclass(frozen=True, eq=False)
class CacheEntry:
    """A compiled program for calls for which the guards of its prologue hold.

    Attributes:
        prologue: checks the guards and returns the inputs.
        run: ``run(inputs, args, kwargs)`` computes, performs the writes, and returns the program's result.
        program: its traces, and the decisions of executors.
        sources: the access path of each input of the executable program.
        result: the reconstruction of the program's result.
        reason: why the program was compiled: the guard that failed, or that it was the first call.
        cached: whether the entry is cached.
        stages: the stages of the compilation, in order.
        preset: the preset of its executors, if the configuration names none.
        writes: the number of writes to Python objects.
        size_report: the sizes and numbers that vary, and those that became constants; None if none was to vary.
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
        may_end: whether ``run`` may raise `thunder_core.errors.RunEnds`.
        traces_numbers: whether numbers that the program reads from tensors are numbers of its traces.
        groups: the ranks of the process groups that it communicates in, by name.
        retries: what the front end and the runtime did in another way after errors, in order.
    """

    prologue: Prologue
    run: Callable[[tuple[Any, ...], tuple[Any, ...], dict[str, Any]], Any]
    program: ExecutableProgram
    sources: tuple[Source, ...]
    result: Reconstruction
    reason: str
    cached: bool
    stages: tuple[StageReport, ...]
    preset: PresetChoice | None
    writes: int
    size_report: SizesReport | None
    checks: ResultChecks
    constants: dict[str, Any]
    random_states: tuple[str, ...]
    uncopied: tuple[str, ...]
    unfit: str | None
    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...]
    raised: BaseException | None
    sizes: Sizes | None
    guesses: tuple[Guess, ...]
    may_end: bool
    traces_numbers: bool
    groups: Mapping[str, tuple[int, ...]]
    retries: tuple[Retry, ...]

    def symbols(self, inputs: tuple[Any, ...]) -> tuple[int, ...]:
        """The values of the symbols in a call with these inputs."""
        return () if self.sizes is None else inputs[len(inputs) - len(self.sizes.hints) :]

    @property
    def varies(self) -> bool:
        """Whether sizes of inputs, or numbers, vary between the calls that it serves."""
        return self.sizes is not None and bool(self.sizes.hints)

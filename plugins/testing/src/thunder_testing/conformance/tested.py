"""The tested executor: compilation of programs with it, and comparison of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.compiled.function import ThunderFunction
from thunder.report.compile_report import entry_report
from thunder.report.training_report import TrainingReport
from thunder_core.errors import ThunderError, WrongResultError
from thunder_core.executors import Claimed, Executor
from thunder_core.executors.states import States
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.compile import compile_program
from thunder_core.settings import Settings
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.queries import Query
from thunder_testing.conformance.recording import program_of
from thunder_testing.conformance.results import ValueCheck
from thunder_testing.conformance.running import Run, in_double, quietly, run
from thunder_testing.conformance.samples import draws
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tolerance import Tolerances, value_problem

Double = Callable[[Call], Sequence[Any]]
"""The result of eager PyTorch for a call in double precision."""


@dataclass(frozen=True, eq=False)
class Tested:
    """An executor under test.

    Attributes:
        executor: as configured.
        plain: the executor itself.
        settings: the settings of compilation, with this executor before the reference executor and no others.
        spelled: the argument ``executors`` of `thunder.jit` as code; None for an executor without a name.
        tolerances: tolerances of values.
    """

    executor: Executor
    plain: Executor
    settings: Settings
    spelled: str | None
    tolerances: Tolerances

    def compile(self, call: Call) -> ThunderFunction:
        """The function of a call, compiled with this executor."""
        return ThunderFunction(program_of(call.function), self.settings)

    def entry(self, call: Call) -> CacheEntry:
        """The program of a call, compiled but not run. Raises Breach if that raises."""
        __tracebackhide__ = True
        with quietly():
            try:
                program = program_of(call.function)
                return compile_program(program, call.args, call.kwargs, self.settings, States(), "it is tested")[0]
            except Exception as error:
                raise raised("compiling", error) from error

    def run(self, program: Callable[..., Any], call: Call) -> Run:
        """Call a compiled program. Raises Breach if it raises, because eager PyTorch runs all calls."""
        __tracebackhide__ = True
        try:
            return run(call, program)
        except Exception as error:
            raise raised("the compiled program", error) from error

    def must_have_run(self, program: ThunderFunction, queries: Sequence[Query]) -> None:
        """Raise `Breach` if the executor claims an operation and does not run it.

        If a fusion executor rejects a region, `NotApplicable` is raised, because nothing was tested.
        """
        claimed = [one for one in queries if isinstance(one.decision, Claimed) and one.decision.rewrite is None]
        if not claimed or program.last is None:
            return
        report = entry_report(program.last)
        if self.executor.name in report.executors:
            return
        reasons = [reason for decision in report.decisions for _, reason in decision.declined]
        if self.executor.fuses:
            raise NotApplicable(f"not fused, because {'; '.join(dict.fromkeys(reasons))}")
        raise Breach(
            "claimed, then run",
            f"{self.executor.name} claims {claimed[0].op.symbol.name}, and does not run it in the compiled program"
            + (f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ""),
        )

    def must_have_differentiated(self, program: ThunderFunction, queries: Sequence[Query]) -> None:
        """Raise `Breach` if the executor has a derivative pair for an operation that it claims, and the pair failed."""
        training = None if program.last is None else TrainingReport.of(program.last.program)
        if training is None:
            return
        symbols = {one.op.symbol.name for one in queries if isinstance(one.decision, Claimed)}
        for derivative in training.derivatives:
            if derivative.symbol in symbols and derivative.reason.startswith(
                f"the pair of {self.executor.name} failed"
            ):
                raise Breach("derivative pair", f"it is not used: {derivative.reason}")

    def value_check(
        self, subject: Subject, queries: Sequence[Query], call: Call, double: Double, *, scale: float = 0.0
    ) -> ValueCheck:
        """The comparison of values by `value_problem`; none for values that are random or uninitialized.

        Args:
            scale: magnitude of numbers that cancel in the result, to which the relative tolerance applies as well.
        """
        # operators may draw random numbers without a tag
        drawn = any(one.op.effects.random for one in queries) and draws(call)
        if drawn or subject.is_uninitialised:
            return _anything
        return _ValueCheck(self.tolerances, subject.name, call, double, scale)


def raised(what: str, error: Exception) -> Breach:
    """The breach for an exception."""
    text = error.problem if isinstance(error, ThunderError) else str(error).split("\n", 1)[0]
    rule = error.rule if isinstance(error, WrongResultError) else "runs"
    return Breach(rule, f"{what} raises {type(error).__name__}: {text}; eager PyTorch raises nothing")


def _anything(name: str, position: int, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Accept any value."""


class _ValueCheck:
    """Compares values. The reference in double precision is computed on first use."""

    def __init__(self, tolerances: Tolerances, subject: str, call: Call, double: Double, scale: float) -> None:
        self._tolerances, self._subject, self._scale = tolerances, subject, scale
        self._call, self._double = call, double
        self._exact: Sequence[Any] | None = None

    def __call__(self, name: str, position: int, actual: torch.Tensor, expected: torch.Tensor) -> None:
        """Raise `Breach` if a result is wrong."""
        rtol, atol = self._tolerances.of(self._subject, expected.dtype)
        tolerance = (rtol, atol + rtol * self._scale)
        problem = value_problem(actual, expected, tolerance, lambda: self._reference(position))
        if problem is not None:
            raise Breach("values", f"{name}: {problem}")

    def _reference(self, position: int) -> torch.Tensor | None:
        if self._exact is None:
            try:
                self._exact = self._double(in_double(self._call))
            except Exception:  # noqa: BLE001 - eager takes no doubles here, so its own result is all there is
                self._exact = ()
        exact = self._exact[position] if position < len(self._exact) else None
        return exact if isinstance(exact, torch.Tensor) else None

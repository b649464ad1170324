"""The executor that a suite tests: compiling programs with it, and comparing what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.config.settings import Settings
from thunder_core.errors import ThunderError, WrongResultError
from thunder_core.executors import Claimed, Executor
from thunder_core.executors.states import States
from thunder_core.runtime.compile import compile_program
from thunder_core.runtime.entry import Entry
from thunder_core.runtime.function import ThunderFunction
from thunder_testing.conformance.asking import Asked
from thunder_testing.conformance.call import Call
from thunder_testing.conformance.failure import Breach, NotApplicable
from thunder_testing.conformance.recording import program_of
from thunder_testing.conformance.results import ValueCheck
from thunder_testing.conformance.running import Run, in_double, quietly, run
from thunder_testing.conformance.samples import draws
from thunder_testing.conformance.subject import Subject
from thunder_testing.conformance.tolerance import Tolerances, value_problem

Double = Callable[[Call], Sequence[Any]]
"""What eager PyTorch gives for a call in double precision."""


@dataclass(frozen=True, eq=False)
class Tested:
    """An executor, as the tests use it.

    Attributes:
        executor: as configured.
        plain: the executor itself.
        settings: how programs are compiled: with this executor alone, before the reference executor.
        spelled: the argument ``executors`` of `thunder.jit` as it is written; None for an executor without a name.
        tolerances: of values.
    """

    executor: Executor
    plain: Executor
    settings: Settings
    spelled: str | None
    tolerances: Tolerances

    def compile(self, call: Call) -> ThunderFunction:
        """The function of a call, compiled with this executor."""
        return ThunderFunction(program_of(call.function), self.settings)

    def entry(self, call: Call) -> Entry:
        """The program of a call, compiled and not run. Raises Breach for what that raises."""
        __tracebackhide__ = True
        with quietly():
            try:
                program = program_of(call.function)
                return compile_program(program, call.args, call.kwargs, self.settings, States(), "it is tested")[0]
            except Exception as error:
                raise raised("compiling", error) from error

    def run(self, program: Callable[..., Any], call: Call) -> Run:
        """Call a compiled program. Raises Breach for what it raises, since eager PyTorch runs all calls."""
        __tracebackhide__ = True
        try:
            return run(call, program)
        except Exception as error:
            raise raised("the compiled program", error) from error

    def must_have_run(self, program: ThunderFunction, asked: Sequence[Asked]) -> None:
        """Raise `Breach` if the executor claimed a line and then did not run it.

        A fusion executor may refuse a region; then `NotApplicable` is raised, as nothing of it was tested.
        """
        claimed = [one for one in asked if isinstance(one.answer, Claimed) and one.answer.rewrite is None]
        if not claimed or program.last is None or self.executor.name in program.last.report.executors:
            return
        reasons = [reason for line in program.last.report.decisions for _, reason in line.declined]
        if self.executor.fuses:
            raise NotApplicable(f"not fused, because {'; '.join(dict.fromkeys(reasons))}")
        raise Breach(
            "claimed, then run",
            f"{self.executor.name} claims {claimed[0].line.symbol.name}, and does not run it in the compiled program"
            + (f": {'; '.join(dict.fromkeys(reasons))}" if reasons else ""),
        )

    def value_check(
        self, subject: Subject, asked: Sequence[Asked], call: Call, double: Double, *, scale: float = 0.0
    ) -> ValueCheck:
        """How values are compared: see `value_problem`; not at all where they are random, or nobody wrote them.

        Args:
            scale: of numbers that cancel in the result; the relative tolerance is for them as well.
        """
        drawn = any(one.line.effects.random for one in asked) and draws(call)  # operators may draw without a tag
        if drawn or subject.is_uninitialised:
            return _anything
        return _ValueCheck(self.tolerances, subject.name, call, double, scale)


def raised(what: str, error: Exception) -> Breach:
    """The breach that an exception is."""
    text = error.problem if isinstance(error, ThunderError) else str(error).split("\n", 1)[0]
    rule = error.rule if isinstance(error, WrongResultError) else "runs"
    return Breach(rule, f"{what} raises {type(error).__name__}: {text}; eager PyTorch raises nothing")


def _anything(name: str, position: int, actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Values are not compared."""


class _ValueCheck:
    """Compares values. The reference in double precision is computed when it is first needed."""

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
        found = self._exact[position] if position < len(self._exact) else None
        return found if isinstance(found, torch.Tensor) else None

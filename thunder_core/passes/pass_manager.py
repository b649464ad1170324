"""Passes and the manager that runs, times and verifies them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from thunder_core import progress
from thunder_core.errors import VerificationError
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.verifier import verification_requested, verify

Result = TypeVar("Result")


class Pass(Generic[Result]):
    """Base of all passes. A pass is a frozen dataclass; its fields are its options.

    Attributes:
        consumes: the stages that it accepts.
        produces: the stage of its result; None when that is the stage it was given.
    """

    consumes: ClassVar[frozenset[Stage]] = frozenset(Stage)
    produces: ClassVar[Stage | None] = None

    @property
    def name(self) -> str:
        """What records and provenances call the pass."""
        return type(self).__name__

    @property
    def title(self) -> str:
        """What messages call this run of it."""
        return f"the pass {self.name!r}"

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do when its trace is malformed."""
        return ("this is a bug of Thunder: please report it, with this message",)

    def run(self, trace: Trace) -> Result:
        """The result for ``trace``, which stays as it is."""
        raise NotImplementedError

    def traces(self, result: Result) -> tuple[Trace, ...]:
        """The traces in a result, the program's own first, for verification and for people."""
        assert isinstance(result, Trace)
        return (result,)


class TracePass(Pass[Trace]):
    """A pass whose result is one trace."""


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One run of a pass.

    Attributes:
        name: of the pass.
        seconds: its wall time.
        traces: what it made.
        title: what messages call the run.
        advice: what to do when its traces are malformed.
    """

    name: str
    seconds: float
    traces: tuple[Trace, ...]
    title: str
    advice: tuple[str, ...]

    def verify(self) -> None:
        """Raise VerificationError, which names the pass, if a trace that it made is malformed."""
        for trace in self.traces:
            try:
                verify(trace, self.title)
            except VerificationError as error:
                raise VerificationError(error.problem, location=error.location, advice=self.advice) from error


@dataclass(slots=True)
class PassManager:
    """Runs passes one by one and keeps what each made.

    Attributes:
        verify: check the traces that go into and come out of each pass. Costs about as much as the passes.
        records: the runs so far.
    """

    verify: bool = field(default_factory=verification_requested)
    records: list[PassRecord] = field(default_factory=list)

    def run(self, single: Pass[Result], trace: Trace) -> Result:
        """Run one pass.

        Raises:
            VerificationError: the pass does not take traces of this stage; or, where that is checked, its result is
                malformed. When a pass fails, all traces so far are checked, for the fault may be an earlier one's.
        """
        if trace.stage not in single.consumes:
            wanted = " or ".join(sorted(stage.value for stage in single.consumes))
            before = f"; the last that ran is {self.records[-1].title}" if self.records else ""
            raise VerificationError(f"{single.title} takes a trace of stage {wanted}, not {trace.stage.value}{before}")
        if self.verify and not self.records:
            self._verify(trace)
        progress.stage(single.name)
        start = time.perf_counter()
        try:
            result = single.run(trace)
        except Exception:
            for earlier in self.records:
                earlier.verify()
            raise
        seconds = time.perf_counter() - start
        traces = single.traces(result)
        self.records.append(PassRecord(single.name, seconds, traces, single.title, single.advice))
        if self.verify:
            self.records[-1].verify()
            if single.produces is not None and traces[0].stage is not single.produces:
                made = f"made a trace of stage {traces[0].stage.value}, not {single.produces.value}"
                raise VerificationError(f"{single.title} {made}", advice=single.advice)
        return result

    def _verify(self, trace: Trace) -> None:
        verify(trace)

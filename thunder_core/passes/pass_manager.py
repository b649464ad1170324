"""The pass manager: runs, times and verifies passes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from thunder_core import progress
from thunder_core.errors import VerificationError
from thunder_core.ir.trace import Trace
from thunder_core.ir.verifier import Checked, verification_requested, verify
from thunder_core.passes.base import Pass, PassContext, Phase, Result


@dataclass(frozen=True, slots=True)
class PassRecord:
    """One run of a pass.

    Attributes:
        name: of the pass.
        phase: phase of the program that it ran on.
        seconds: its wall time.
        traces: its results.
        title: name of the run in messages.
        advice: advice for the message if its traces are malformed.
    """

    name: str
    phase: Phase
    seconds: float
    traces: tuple[Trace, ...]
    title: str
    advice: tuple[str, ...]

    def verify(self, checked: Checked) -> None:
        """Raise VerificationError, which names the pass, if a trace in its result is malformed.

        Args:
            checked: as in `thunder_core.ir.verifier.verify`.
        """
        for trace in self.traces:
            try:
                verify(trace, self.title, checked)
            except VerificationError as error:
                raise VerificationError(error.problem, location=error.location, advice=self.advice) from error


@dataclass(frozen=True)
class StageReport:
    """One stage of a compilation: its name, its wall time in seconds, and the number of ops of its trace."""

    name: str
    seconds: float
    lines: int | None

    @staticmethod
    def of(record: PassRecord) -> StageReport:
        """The stage that one run of a pass was."""
        return StageReport(record.name, record.seconds, len(record.traces[0].symbols) if record.traces else None)


@dataclass(slots=True)
class PassManager:
    """Runs passes and records the result of each.

    Attributes:
        verify: check the traces that go into and come out of each pass. Costs about a fourth of what the passes cost.
        records: the runs so far.
    """

    verify: bool = field(default_factory=verification_requested)
    records: list[PassRecord] = field(default_factory=list)
    _checked: Checked = field(default_factory=dict, init=False, repr=False)

    def run(self, single: Pass[Result], trace: Trace, context: PassContext | None = None) -> Result:
        """Run one pass, by default in an empty context.

        Raises:
            VerificationError: the pass does not accept traces of this stage; or, with ``verify``, its result is
                malformed. If a pass fails, all earlier results are verified, since one of them may be the cause.
        """
        context = PassContext() if context is None else context
        title = single.title(context)
        if trace.stage not in single.consumes:
            wanted = " or ".join(sorted(stage.value for stage in single.consumes))
            before = f"; the last that ran is {self.records[-1].title}" if self.records else ""
            raise VerificationError(f"{title} takes a trace of stage {wanted}, not {trace.stage.value}{before}")
        if self.verify and not self.records:
            verify(trace, checked=self._checked)
        progress.stage(single.name)
        start = time.perf_counter()
        try:
            result = single.checked_run(trace, context)
        except Exception:
            for earlier in self.records:
                earlier.verify(self._checked)
            raise
        seconds = time.perf_counter() - start
        traces = single.traces(result)
        self.records.append(PassRecord(single.name, context.phase, seconds, traces, title, single.advice))
        if self.verify:
            self.records[-1].verify(self._checked)
            if single.produces is not None and traces[0].stage is not single.produces:
                problem = f"returned a trace of stage {traces[0].stage.value}, not {single.produces.value}"
                raise VerificationError(f"{title} {problem}", advice=single.advice)
        return result

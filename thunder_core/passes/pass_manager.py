"""Passes and the manager that runs, times and verifies them."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from thunder_core import progress
from thunder_core.errors import VerificationError
from thunder_core.ir.trace import Stage, Trace

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
    """One run of a pass: its name, its wall time in seconds, and the traces that it made."""

    name: str
    seconds: float
    traces: tuple[Trace, ...]


def verification_requested() -> bool:
    """Whether the environment asks for verification between passes (``THUNDER_VERIFY=1``)."""
    return os.environ.get("THUNDER_VERIFY", "") not in ("", "0")


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
        """Run one pass. Raises VerificationError for a trace of a stage that the pass does not take."""
        if trace.stage not in single.consumes:
            wanted = " or ".join(sorted(stage.value for stage in single.consumes))
            raise VerificationError(f"{single.name} takes a trace of stage {wanted}, not {trace.stage.value}")
        if self.verify and not self.records:
            self._verify(trace)
        progress.stage(single.name)
        start = time.perf_counter()
        result = single.run(trace)
        seconds = time.perf_counter() - start
        traces = single.traces(result)
        self.records.append(PassRecord(single.name, seconds, traces))
        if self.verify:
            for made in traces:
                self._verify(made)
            if single.produces is not None and traces[0].stage is not single.produces:
                raise VerificationError(f"{single.name} made a trace of stage {traces[0].stage.value}")
        return result

    def _verify(self, trace: Trace) -> None:
        from thunder_core.ir.verifier import verify

        verify(trace)

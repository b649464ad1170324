"""Compilation of programs that a call needs only after the first compilation, such as a specialized backward."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from thunder_core.autodiff.zero_cotangents import ZeroCotangents
from thunder_core.executors.states import States
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase
from thunder_core.passes.pass_manager import PassManager, StageReport
from thunder_core.runtime.compilation import Compilation
from thunder_core.runtime.pipeline import SECOND_DERIVATIVES, Step, late_backward, run
from thunder_core.tracing.sizes import Sizes, compiling_with


@dataclass(frozen=True)
class LatePrograms:
    """Compiles programs later. It has no references to inputs of a call or to intermediate traces.

    Attributes:
        compilation: the first compilation, without its traces.
        stages: the stages of all programs that it compiled.
        sizes: the size symbols of the compilation; None if all sizes are constants.
    """

    compilation: Compilation
    stages: list[StageReport] = field(default_factory=list)
    sizes: Sizes | None = None

    def backward(self, trace: Trace, specialization: ZeroCotangents) -> tuple[Trace, Trace]:
        """A backward for some cotangents and gradients. Returns the functional and the executable trace.

        Args:
            trace: backward as it was partitioned.
            specialization: the pass for the absent cotangents and the gradients that are not needed.
        """
        return self._run(late_backward(specialization), Phase.BACKWARD, trace, self.compilation)

    def second_derivatives(self, trace: Trace) -> Trace:
        """The executable trace of the program before differentiation, to run under autograd."""
        alone = replace(self.compilation, executors=(), states=States())
        return self._run(SECOND_DERIVATIVES, Phase.INFERENCE, trace, alone)[-1]

    def _run(
        self, steps: tuple[Step, ...], phase: Phase, trace: Trace, compilation: Compilation
    ) -> tuple[Trace, Trace]:
        manager = PassManager()
        with compiling_with(self.sizes):
            after = run(manager, steps, replace(compilation, traces={phase: trace}))
        self.stages.extend(map(StageReport.of, manager.records))
        return manager.records[0].traces[0], after.traces[phase]

"""Programs that are made after the compilation, when a call first needs them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from thunder_core.autodiff.zero_cotangents import ZeroCotangents
from thunder_core.executors.states import States
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase
from thunder_core.passes.pass_manager import PassManager
from thunder_core.report.compile_report import StageReport
from thunder_core.runtime.compilation import Compilation
from thunder_core.runtime.pipeline import SECOND_DERIVATIVES, Step, late_backward, run
from thunder_core.tracing.sizes import Sizes, compiling_with


@dataclass(frozen=True)
class LatePrograms:
    """Makes them. It keeps alive neither inputs of a call nor the traces between two steps.

    Attributes:
        compilation: what they share with the programs of the compilation.
        stages: of all that were made so far.
        sizes: of the compilation, that vary between calls; None where all are constants.
    """

    compilation: Compilation
    stages: list[StageReport] = field(default_factory=list)
    sizes: Sizes | None = None

    def backward(self, trace: Trace, specialise: ZeroCotangents) -> tuple[Trace, Trace]:
        """A backward for some cotangents and gradients: specialised, and as executors run it.

        Args:
            trace: as it was partitioned.
        """
        return self._run(late_backward(specialise), Phase.BACKWARD, trace, self.compilation)

    def second_derivatives(self, trace: Trace) -> Trace:
        """The program before differentiation, as PyTorch runs it under autograd."""
        alone = replace(self.compilation, executors=(), states=States())
        return self._run(SECOND_DERIVATIVES, Phase.INFERENCE, trace, alone)[-1]

    def _run(
        self, steps: tuple[Step, ...], phase: Phase, trace: Trace, compilation: Compilation
    ) -> tuple[Trace, Trace]:
        manager = PassManager()
        with compiling_with(self.sizes):
            made = run(manager, steps, replace(compilation, traces={phase: trace}))
        self.stages.extend(map(StageReport.of, manager.records))
        return manager.records[0].traces[0], made.traces[phase]

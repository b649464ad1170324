"""The report of the memory of a program with a budget."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.report.amounts import bytes_text, percent
from thunder_core.autodiff.partitioning.memory import peak_of_executable
from thunder_core.runtime.differentiated import DifferentiatedProgram


@dataclass(frozen=True)
class MemoryReport:
    """The predicted memory of forward and backward, in bytes.

    Attributes:
        budget: the budget that the partition was chosen for.
        peak: the largest amount, with the inputs of the program, of the ops that run.
        inputs: that of parameters, buffers, arguments and other inputs.
        program, location: the program and the user's line of the peak; no line if it is unknown.
        usual: the peak without a budget, before executors claim ops.
        added: the time that recomputation and offloading add, as a share of the estimated time without a budget.
        offloaded: the bytes of saved values that wait for backward in the memory of the host.
    """

    budget: int
    peak: int
    inputs: int
    program: str
    location: str | None
    usual: int
    added: float
    offloaded: int = 0

    @classmethod
    def of(cls, program: DifferentiatedProgram) -> MemoryReport | None:
        """The report; None without a budget."""
        chosen, budget = program.partitioned.memory, program.late.compilation.memory
        if chosen is None or budget is None:
            return None
        peak, _, _ = peak_of_executable(program.joint, program.forward_trace, program.backward_trace)
        location = None if peak.location is None else peak.location.place()
        offloaded = program.partitioned.offloaded
        return cls(budget, peak.bytes, peak.inputs, peak.program, location, chosen.usual, chosen.added, offloaded)

    def summary(self) -> str:
        """The report in a line."""
        text = f"memory: {bytes_text(self.peak)} of {bytes_text(self.budget)} (predicted)"
        text += f"; {bytes_text(self.offloaded)} offloaded" if self.offloaded else ""
        return text + (f"; estimated time +{percent(self.added)}" if self.added else "")

    def lines(self) -> list[str]:
        """The report as text."""
        where = f" at {self.location}" if self.location else ""
        return [
            self.summary(),
            f"  peak in {self.program}{where}; {bytes_text(self.inputs)} are inputs",
            f"  without the budget: {bytes_text(self.usual)}",
        ]

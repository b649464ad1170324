"""How one program was differentiated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from thunder_core.report.amounts import bytes_text, counted


@dataclass(frozen=True)
class DerivativeReport:
    """Lines of one program that are differentiated in one way.

    Attributes:
        symbol: what they call.
        source: who gave the formula: "a hand-written rule", "PyTorch's autograd", "hooks", an executor's name, or
            "eager at run time" where autograd records the line itself.
        reason: why earlier ways to a derivative failed; empty if they just have no formula.
        lines: how many they are.
    """

    symbol: str
    source: str
    reason: str
    lines: int


@dataclass(frozen=True)
class TrainingReport:
    """Forward and backward of one program.

    Attributes:
        derivatives: of the lines that gradients go through.
        forward_lines, backward_lines: lines of the two programs.
        saved_values, saved_bytes: values that are computed by forward and saved for backward alone, and their memory.
        saved_results: values that are saved for backward, and that the caller gets.
        saved_inputs: inputs that are saved for backward, which takes no memory.
        recomputed: number of values that forward computes and backward computes again.
        recompute: the policy by which that was decided.
    """

    derivatives: tuple[DerivativeReport, ...]
    forward_lines: int
    backward_lines: int
    saved_values: int
    saved_bytes: int
    saved_results: int
    saved_inputs: int
    recomputed: int
    recompute: str | dict[str, float]

    @property
    def sources(self) -> dict[str, int]:
        """Number of lines by who gave their derivative, the most first."""
        counts: Counter[str] = Counter()
        for derivative in self.derivatives:
            counts[derivative.source] += derivative.lines
        return dict(counts.most_common())

    def lines(self) -> Sequence[str]:
        """The report as text."""
        counts = ", ".join(f"{count} by {source}" for source, count in self.sources.items())
        remarks = [
            f"  {item.lines} x {item.symbol} by {item.source}, since {item.reason}"
            for item in self.derivatives
            if item.reason
        ]
        kept = f"{counted(self.saved_values, 'value')} of {bytes_text(self.saved_bytes)}, "
        kept += f"{counted(self.saved_results, 'result')} and {counted(self.saved_inputs, 'input')}"
        return (
            f"lines differentiated: {counts}",
            *remarks,
            f"forward of {self.forward_lines} lines keeps {kept} for backward of {self.backward_lines} lines",
            f"values computed again in backward: {self.recomputed} (recompute={self.recompute!r})",
        )

"""The findings of `bisect`."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.location import SourceLocation
from thunder_plugin_debug.difference import Difference
from thunder_plugin_debug.line import Line, shortened


@dataclass(frozen=True, slots=True)
class Divergence:
    """An operation of an executor whose result differs from the reference.

    Attributes:
        line: the operation.
        differences: the differences of its results, in order; at least one.
        suspects: for a fused region, the operations that may be wrong, as far as its results show. The last of them
            computes the first of these results.
        location: the user's line; for a fused region that of the last suspect.
    """

    line: Line
    differences: tuple[Difference, ...]
    suspects: tuple[str, ...] = ()
    location: SourceLocation | None = None

    @property
    def executor(self) -> str:
        """The executor of the operation."""
        return self.line.executor

    @property
    def greatest(self) -> float | None:
        """The largest difference in the first value that differs; None if its shape, dtype or strides differ."""
        return self.differences[0].greatest

    @property
    def problem(self) -> str:
        """A description of the problem."""
        inside = f"; the wrong operation is {' or '.join(self.suspects)}" if self.suspects else ""
        texts = "".join([f"\n  {difference.text}" for difference in self.differences])
        line = self.line
        return (
            f"{line.executor} differs from the reference in {shortened(line.operation)}, in {line.phase}{inside}{texts}"
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice on the problem."""
        patterns = list(dict.fromkeys(self.suspects or self.line.operations))
        return (
            f"exclude it from the executor: executors: [{{{self.line.executor}: {{exclude: {patterns}}}}}]",
            "if the difference is acceptable, increase the options rtol and atol of bisect",
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    """An operation of an executor that cannot be compared, and the reason."""

    line: Line
    reason: str

"""What the bisection found."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.location import SourceLocation
from thunder_plugin_debug.difference import Difference
from thunder_plugin_debug.line import Line, shortened


@dataclass(frozen=True, slots=True)
class Divergence:
    """A line of an executor that does something else than the reference.

    Attributes:
        line: which.
        differences: how the values differ that it gives, in their order; at least one.
        suspects: of a fused region: the operations that may be the wrong one, as far as its results tell. The last of
            them gives the first of these values.
        location: the user's line; of a fused region that of the last suspect.
    """

    line: Line
    differences: tuple[Difference, ...]
    suspects: tuple[str, ...] = ()
    location: SourceLocation | None = None

    @property
    def executor(self) -> str:
        """Who ran the line."""
        return self.line.executor

    @property
    def greatest(self) -> float | None:
        """The greatest distance in the first value that differs; None where its shape, dtype or strides do."""
        return self.differences[0].greatest

    @property
    def problem(self) -> str:
        """What happened, in words."""
        inside = f"; what is wrong there is {' or '.join(self.suspects)}" if self.suspects else ""
        texts = "".join([f"\n  {found.text}" for found in self.differences])
        line = self.line
        return (
            f"{line.executor} differs from the reference in {shortened(line.operation)}, in {line.phase}{inside}{texts}"
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it."""
        patterns = list(dict.fromkeys(self.suspects or self.line.operations))
        return (
            f"let others run it: executors: [{{{self.line.executor}: {{exclude: {patterns}}}}}]",
            "if the executor is right to differ, give bisect the options rtol and atol",
        )


@dataclass(frozen=True, slots=True)
class Skipped:
    """A line of an executor that cannot be compared, and why."""

    line: Line
    reason: str

"""The findings of `nan_finder`."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.location import SourceLocation
from thunder_plugin_debug.line import Line


@dataclass(frozen=True, slots=True)
class Finding:
    """A value with NaNs or infinities.

    Attributes:
        line: the operation that produced it; for an input, the first operation that reads it.
        kind: "NaN" or "infinity".
        value: its name in the trace.
        came_in: whether it is an input of the program: an argument, a parameter or a gradient.
        count: number of elements of this kind.
        total: number of all elements.
        ranges: one line of text per tensor argument of the operation: name, dtype, shape, smallest and largest value;
            for tensors that the operation writes in place, after the write.
        location: the user's line; for a fused region that of the operation that produced the first one.
        inside: for a fused region, that operation, or the reason why it is unknown.
    """

    line: Line
    kind: str
    value: str
    came_in: bool
    count: int
    total: int
    ranges: tuple[str, ...]
    location: SourceLocation | None = None
    inside: str = ""

    @property
    def problem(self) -> str:
        """A description of the problem."""
        amount = f"{self.count} of {self.total} elements of {self.value}"
        taken = "".join([f"\n  argument {text}" for text in self.ranges])
        if self.came_in:
            reader = f"first read by {self.line.describe()}"
            return f"{self.kind} in an input of the {self.line.phase} program, in {amount}; {reader}{taken}"
        inside = f"; {self.inside}" if self.inside else ""
        return f"{self.kind} produced by {self.line.describe()}, in {amount}{inside}{taken}"

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice on the problem."""
        if self.came_in and self.line.phase == "backward":
            return ("check the operations after the compiled program, and the values that forward saved",)
        if self.came_in:
            return ("check the arguments, parameters and buffers of the program",)
        ways = []
        if self.kind == "NaN" and any(text.endswith("infinity") for text in self.ranges):
            ways.append("its arguments contain infinities; nan_finder with the option inf: true locates their origin")
        if self.line.executor != "reference":
            ways.append(f"compare {self.line.executor} with PyTorch with the transform bisect")
        ways.append(f"if it is intended, give nan_finder the option exclude: [{self.line.operation!r}]")
        return tuple(ways)

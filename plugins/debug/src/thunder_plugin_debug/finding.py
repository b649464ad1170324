"""What the NaN finder found."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.location import SourceLocation
from thunder_plugin_debug.line import Line


@dataclass(frozen=True, slots=True)
class Finding:
    """A value with NaNs or infinities.

    Attributes:
        line: the line that made it; of a value that came in, the first line where it shows.
        kind: "NaN" or "infinity".
        value: its name in the trace.
        came_in: whether the program was given it, as an argument, a parameter or a gradient, instead of making it.
        count: how many of its elements are such.
        total: how many elements it has.
        ranges: one line of text for each tensor that the line takes: name, dtype, shape, least and greatest value. Of
            what the line writes in place, as it is after that.
        location: the user's line; of a fused region that of the operation that makes the first one.
        inside: of a fused region: which operation that is, or why it cannot be told.
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
        """What happened, in words."""
        amount = f"{self.count} of {self.total} elements of {self.value}"
        taken = "".join([f"\n  takes {text}" for text in self.ranges])
        if self.came_in:
            shows = f"it shows in {self.line.describe()}"
            return f"{self.kind} came into the {self.line.phase} program, in {amount}; {shows}{taken}"
        inside = f"; {self.inside}" if self.inside else ""
        return f"{self.kind} was made by {self.line.describe()}, in {amount}{inside}{taken}"

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it."""
        if self.came_in and self.line.phase == "backward":
            return ("look at what follows the compiled program, or at what forward saved",)
        if self.came_in:
            return ("look at the arguments, parameters and buffers of the program",)
        ways = []
        if self.kind == "NaN" and any(text.endswith("infinity") for text in self.ranges):
            ways.append("it takes infinities; nan_finder with the option inf: true says where they were made")
        if self.line.executor != "reference":
            ways.append(f"compare {self.line.executor} with PyTorch by the transform bisect")
        ways.append(f"if it is meant to be there, give nan_finder the option exclude: [{self.line.operation!r}]")
        return tuple(ways)

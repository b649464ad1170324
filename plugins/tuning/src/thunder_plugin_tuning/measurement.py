"""What the search found out about each change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["faster", "not faster", "slower", "unchanged", "repeated", "rejected", "failed", "not measured"]


@dataclass(frozen=True)
class Measurement:
    """A change of the list of executors, and its outcome.

    Attributes:
        change: the change, as text.
        executor: the executor that it is about.
        operation: the operation that it is about; empty for all.
        outcome: "faster": it was kept. "not faster": the difference is within the noise, or below 1 %. "slower".
            "unchanged": the same program runs. "repeated": a program that was tried before runs. "rejected": its
            results differ. "failed": it does not compile or run. "not measured".
        before, after: seconds of a call without and with the change; None if they were not measured.
        rounds: number of rounds of the measurement.
        reason: why, for the other outcomes.
    """

    change: str
    executor: str
    operation: str
    outcome: Outcome
    before: float | None = None
    after: float | None = None
    rounds: int = 0
    reason: str = ""

    def __str__(self) -> str:
        text = f"{self.change}: {self.outcome}"
        if self.before is not None and self.after is not None:
            text += f", {times_text(self.before, self.after)}"
        return text + (f": {self.reason}" if self.reason else "")


def times_text(before: float, after: float) -> str:
    """Two times of a call in the same unit: ``9.81 -> 7.10 ms``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if before >= size or unit == "us":
            return f"{before / size:.3g} -> {after / size:.3g} {unit}"
    raise AssertionError("the last unit fits all")

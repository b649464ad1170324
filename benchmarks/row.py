"""One line of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

BASELINES = ("compile", "torch.compile", "eager")
"""What ratios refer to unless somebody says otherwise: the first of these that was measured."""
WITHOUT_RATIO = ("", "%", "x", "GB/s", "TFLOP/s")
"""Units whose values have no ratio that says anything new."""


@dataclass(frozen=True)
class Row:
    """What was measured, for each implementation.

    Attributes:
        group: what it belongs to: rows of a group are one table.
        what: what was measured, one line.
        unit: of the values: us, ms, s, MiB, %, 1/s, GB/s, TFLOP/s, x (a ratio) or an empty string.
        values: a number for each implementation; absent where it has no meaning or was not measured.
        skipped: why an implementation was not measured, by its name.
        goal: what Thunder is to reach, in words; empty if there is none.
        reached: whether it does; None if there is no goal or it could not be told.
        details: what else was seen; kept in the JSON file, not shown in the table.
        spread: the least and the most that was seen, where the value is a median.
    """

    group: str
    what: str
    unit: str
    values: dict[str, float]
    skipped: dict[str, str]
    goal: str = ""
    reached: bool | None = None
    details: dict[str, Any] | None = None
    spread: dict[str, tuple[float, float]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The row as plain data."""
        return asdict(self)

    def ratios(self, baseline: str | None = None) -> dict[str, float]:
        """Each value divided by the baseline's; empty if that was not measured or the unit has no meaningful ratio."""
        name = baseline or next((name for name in BASELINES if name in self.values), "")
        if self.unit in WITHOUT_RATIO or not self.values.get(name):
            return {}
        return {other: value / self.values[name] for other, value in self.values.items() if other != name}


def reached_by_thunder(values: dict[str, float], test: Callable[[float], bool]) -> bool | None:
    """Whether all that is Thunder among the implementations passes a test.

    None if it is not there, or if something is not there that the test compares it with.
    """
    try:
        verdicts = [test(value) for name, value in values.items() if name.startswith("thunder")]
    except KeyError:
        return None
    return all(verdicts) if verdicts else None

"""One row of a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

BASELINES = ("compile", "torch.compile", "eager")
"""Default baselines of ratios: the first of these that was measured."""
BEST = "best"
"""The baseline that is the best value of the implementations that are not Thunder."""
WITHOUT_RATIO = ("", "%", "x", "GB/s", "TFLOP/s")
"""Units for which no ratios are shown."""


@dataclass(frozen=True)
class Row:
    """A measurement of several implementations.

    Attributes:
        group: title of the table that contains the row.
        what: the measured quantity, in one line.
        unit: unit of the values: us, ms, s, MiB, %, 1/s, GB/s, TFLOP/s, x (a ratio) or an empty string.
        values: the value by implementation, without implementations that have none.
        skipped: the reason by implementation that was not measured.
        goal: Thunder's goal as text; empty if there is none.
        reached: whether Thunder reaches the goal; None if there is no goal, or a value for the comparison is missing.
        details: further results for the JSON file, which tables do not show.
        spread: minimum and maximum by implementation whose value is a median.
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
        """Each value divided by the baseline's. Empty if the baseline was not measured, or for `WITHOUT_RATIO`.

        With `BEST`, that of the best has the ratio 1; with other baselines it has none.
        """
        if self.unit in WITHOUT_RATIO:
            return {}
        if baseline == BEST:
            best = self.best_of_others()
            return {name: value / best for name, value in self.values.items()} if best else {}
        name = baseline or next((name for name in BASELINES if name in self.values), "")
        if not self.values.get(name):
            return {}
        return {other: value / self.values[name] for other, value in self.values.items() if other != name}

    def best_of_others(self) -> float | None:
        """The least value of the implementations that are not Thunder, for rates the largest; None without a value."""
        others = [value for name, value in self.values.items() if not is_thunder(name)]
        if not others:
            return None
        return max(others) if self.unit == "1/s" else min(others)


def is_thunder(name: str) -> bool:
    """Whether an implementation is Thunder."""
    return name.startswith("thunder")


def reached_by_thunder(values: dict[str, float], test: Callable[[float], bool]) -> bool | None:
    """Whether the values of all Thunder implementations pass a test.

    None if there are none, or if the test raises KeyError because a value for the comparison is missing.
    """
    try:
        verdicts = [test(value) for name, value in values.items() if is_thunder(name)]
    except KeyError:
        return None
    return all(verdicts) if verdicts else None

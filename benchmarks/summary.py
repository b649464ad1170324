"""Rows of a comparison: medians over steps and rounds, and differences of losses from eager's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.comparison import Run
from benchmarks.implementations import in_float8
from benchmarks.losses import FLOAT8_LIMIT, allowed, largest, largest_difference
from benchmarks.row import Row
from benchmarks.workload import Workload

MIB = 2**20
COMPILATIONS = "compilations"
TITLES = {
    "training": "training step",
    "forward": "inference",
    "prefill": "prefill",
    "decode": "next token",
    "generation": "generated token",
}
WHOLE = {"generation": "generation"}
"""The name of a whole step, where a time is not that of a step."""


@dataclass(frozen=True)
class Metric:
    """A quantity that runs measure.

    Attributes:
        name: its name in ``metrics``.
        label: its name in tables; ``{}`` is replaced by what the task repeats, ``{whole}`` by its step.
        unit: see `Row`.
        samples: from a run and its result to values in this unit; empty if the run did not measure it.
    """

    name: str
    label: str
    unit: str
    samples: Callable[[Run, dict[str, Any]], list[float]]


def _memory(kind: str) -> Callable[[Run, dict[str, Any]], list[float]]:
    return lambda run, result: [result["memory"][kind] / MIB] if run.timed and kind in result["memory"] else []


def _scaled(key: str, scale: float) -> Callable[[Run, dict[str, Any]], list[float]]:
    """Seconds of each step, or of each of its tokens for ``generation``, times ``scale``."""
    return lambda run, result: [second * scale / run.workload.repeats for second in result[key]] if run.timed else []


def _throughput(run: Run, result: dict[str, Any]) -> list[float]:
    return [result["items"] / second for second in result["steps"]] if run.timed else []


def _compilations(run: Run, result: dict[str, Any]) -> list[float]:
    count = result.get("compilations")
    return [float(count)] if run.timed and count is not None else []


METRICS = (
    Metric("step", "{}", "ms", _scaled("steps", 1e3)),
    Metric("throughput", "tokens or samples", "1/s", _throughput),
    Metric("host", "host time to enqueue it", "ms", _scaled("host", 1e3)),
    Metric("cold", "first {whole}, empty caches", "s", lambda run, result: [result["first"]] * (run.cache == "cold")),
    Metric("warm", "first {whole}, filled caches", "s", lambda run, result: [result["first"]] * (run.cache == "warm")),
    Metric("allocated", "peak memory", "MiB", _memory("allocated")),
    Metric("reserved", "peak memory reserved", "MiB", _memory("reserved")),
    Metric("resident", "peak memory of the process", "MiB", _memory("resident")),
    Metric(COMPILATIONS, "compiled programs", "", _compilations),
)
LOSS = "loss"
ALL = (*(metric.name for metric in METRICS if metric.name != COMPILATIONS), LOSS)
"""The metrics that are shown by default."""


def rows_of(
    runs: Sequence[Run],
    metrics: Sequence[str] = ALL,
    by_metric: bool = False,
    unavailable: Mapping[str, str] | None = None,
) -> list[Row]:
    """A row for each workload and metric, grouped by workload or by metric.

    ``unavailable`` has selected implementations that did not run, with the reason.
    """
    workloads = dict.fromkeys((run.workload.task, run.workload.label) for run in runs)
    rows = []
    for workload in workloads:
        members = [run for run in runs if (run.workload.task, run.workload.label) == workload]
        rows += [row for row in _rows(members, metrics, by_metric, unavailable or {}) if row.values]
    groups = list(dict.fromkeys(row.group for row in rows))
    return sorted(rows, key=lambda row: groups.index(row.group))


def _rows(runs: list[Run], metrics: Sequence[str], by_metric: bool, unavailable: Mapping[str, str]) -> list[Row]:
    shown = [run for run in runs if not run.reference]
    failed = {run.implementation: run.failure.splitlines()[-1] for run in shown if run.failure}
    rows = [_row(metric, shown, {**unavailable, **failed}, by_metric) for metric in METRICS if metric.name in metrics]
    return [*rows, *(_loss_rows(runs, by_metric) if LOSS in metrics else [])]


def _row(metric: Metric, runs: list[Run], failed: dict[str, str], by_metric: bool) -> Row:
    values, spread = {}, {}
    for name in dict.fromkeys(run.implementation for run in runs):
        samples_of_runs = [metric.samples(run, run.result) for run in runs if run.implementation == name and run.result]
        rounds = [samples for samples in samples_of_runs if samples]
        if rounds:
            values[name] = statistics.median(map(statistics.median, rounds))
            every = [sample for samples in rounds for sample in samples]
            if len(every) > 1:
                spread[name] = (min(every), max(every))
    titles = _titles(runs[0].workload, metric.label, by_metric)
    return Row(*titles, metric.unit, values, failed, spread=spread)


def _loss_rows(runs: list[Run], by_metric: bool) -> list[Row]:
    finished = [run for run in runs if run.result and run.timed]
    eager = [run for run in finished if run.implementation == "eager" and not run.kernels]
    if not eager:
        return []
    expected = eager[0].result["losses"]
    differences = [(run, largest_difference(run.result["losses"], expected)) for run in finished if run is not eager[0]]
    noise = {run.kernels or f"round {run.round + 1}": d for run, d in differences if run.implementation == "eager"}
    limit = allowed(noise.values(), runs[0].workload.precision)
    names = dict.fromkeys(run.implementation for run, _ in differences)
    farthest = {name: largest(d for run, d in differences if run.implementation == name) for name in names}
    # The noise does not cover float8, which rounds more coarsely; `_last_losses` compares its last losses.
    verdicts = [difference <= limit for name, difference in farthest.items() if name != "eager" and not in_float8(name)]
    titles = _titles(runs[0].workload, "losses, from eager's (eager: other kernels)", by_metric)
    values = {name: 100 * farthest[name] for name in sorted(farthest, key=lambda name: name != "eager")}
    details = {"steps": len(expected), "eager with other kernels": noise}
    goal = f"<= {100 * limit:.2g} %"
    row = Row(*titles, "%", values, {}, goal, all(verdicts) if verdicts else None, details)
    return [row, *_last_losses(finished, expected, by_metric)]


def _last_losses(runs: list[Run], expected: list[float], by_metric: bool) -> list[Row]:
    """Differences of the mean of the last tenth of the losses, if an implementation computes in float8."""
    if runs[0].workload.task != "training" or not any(in_float8(run.implementation) for run in runs):
        return []
    count = max(1, len(expected) // 10)
    right = statistics.mean(expected[-count:])
    values = {
        run.implementation: 100 * abs(statistics.mean(run.result["losses"][-count:]) / right - 1)
        for run in runs
        if run.result and not run.kernels and run.implementation != "eager"
    }
    reached = all(value <= FLOAT8_LIMIT for name, value in values.items() if in_float8(name))
    titles = _titles(runs[0].workload, f"loss after {len(expected)} steps, from eager's", by_metric)
    return [Row(*titles, "%", values, {}, f"<= {FLOAT8_LIMIT} %", reached)]


def _titles(workload: Workload, label: str, by_metric: bool) -> tuple[str, str]:
    title = label.format(title_of(workload), whole=whole_title_of(workload))
    return (title, workload.label) if by_metric else (f"{workload.task} {workload.label}", title)


def title_of(workload: Workload) -> str:
    """What the workload repeats, as it is named in tables."""
    both = workload.task == "training" and workload.optimizer == "none"
    return "forward and backward" if both else TITLES[workload.task]


def whole_title_of(workload: Workload) -> str:
    """A step of the workload, as it is named in tables."""
    return WHOLE.get(workload.task) or title_of(workload)

"""Rows of a profile: steps, kernels by class, the longest kernels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks import summary
from benchmarks.comparison import Run
from benchmarks.profiling.classes import in_order
from benchmarks.profiling.measurement import FIRST_STEPS
from benchmarks.profiling.recording import Kernel
from benchmarks.row import Row

METRICS = ("step", "host", "cold", "allocated", "reserved", "resident")
KIND = {"cuda": "kernels", "cpu": "operators"}
REST = {"cuda": "idle: the step minus its kernels", "cpu": "outside of operators, under the profiler"}
NAME = 90
"""Number of characters that tables show of a kernel's name."""
PREFIXES = re.compile(r"\bvoid |\bat::native::|\(anonymous namespace\)::")


def rows_of(runs: Sequence[Run], unavailable: Mapping[str, str], kernels: int) -> list[Row]:
    """For each workload, groups for the step, for kernels by class, and for the ``kernels`` longest kernels.

    ``unavailable`` has selected implementations that did not run, with the reason.
    """
    workloads = {run.workload.label: run.workload.device for run in runs}
    rows = []
    for label, device in workloads.items():
        members = [run for run in runs if run.workload.label == label]
        skipped = {
            **unavailable,
            **{run.implementation: run.failure.splitlines()[-1] for run in members if run.failure},
        }
        results = {run.implementation: run.result for run in members if run.result}
        rows += _steps(members, results, skipped)
        profiles = {name: [Kernel(**kernel) for kernel in result["kernels"]] for name, result in results.items()}
        rests = {name: result["rest"] for name, result in results.items()}
        rows += _classes(f"{KIND[device]} of a step by class, {label}", profiles, rests, device, skipped)
        rows += _longest(f"longest {KIND[device]} of a step, {label}", profiles, kernels, skipped)
    return [row for row in rows if row.values]


def _steps(runs: list[Run], results: dict[str, dict[str, Any]], skipped: dict[str, str]) -> list[Row]:
    alone = all(result["first"] for result in results.values())
    metrics = METRICS if alone else [name for name in METRICS if name != "cold"]
    rows = summary.rows_of(runs, metrics, unavailable=skipped)
    if not rows:
        return []
    group = rows[0].group
    queued = {name: result["queued"] * 1e3 for name, result in results.items() if result["queued"]}
    rows.insert(1, Row(group, "training step without synchronization", "ms", queued, skipped))
    for index in range(FIRST_STEPS):
        losses = {name: result["losses"][index] for name, result in results.items()}
        rows.append(Row(group, f"loss of step {index + 1}", "", losses, skipped))
    return rows


def _classes(
    group: str, profiles: dict[str, list[Kernel]], rests: dict[str, float], device: str, skipped: dict[str, str]
) -> list[Row]:
    rows = []
    for kind in in_order(device):
        members = {name: [kernel for kernel in kernels if kernel.kind == kind] for name, kernels in profiles.items()}
        rows.append(_row(group, kind, {name: kernels for name, kernels in members.items() if kernels}, skipped))
    sums = _row(group, "sum", profiles, skipped)
    launches = {name: _launches(kernels) for name, kernels in profiles.items()}
    idle = {name: seconds * 1e3 for name, seconds in rests.items()}
    return [*rows, sums, Row(group, REST[device], "ms", idle, skipped), Row(group, "launches", "", launches, skipped)]


def _longest(group: str, profiles: dict[str, list[Kernel]], count: int, skipped: dict[str, str]) -> list[Row]:
    """The ``count`` longest kernels of each implementation, longest first."""
    listed = {kernel.name: kernel for kernels in profiles.values() for kernel in kernels[:count]}
    rows = []
    for name, kernel in listed.items():
        same = {key: [other for other in kernels if other.name == name] for key, kernels in profiles.items()}
        what = f"{kernel.kind}: {PREFIXES.sub('', name)[:NAME]}"
        rows.append(_row(group, what, {key: kernels for key, kernels in same.items() if kernels}, skipped))
    return sorted(rows, key=lambda row: -max(row.values.values()))


def _row(group: str, what: str, kernels: dict[str, list[Kernel]], skipped: dict[str, str]) -> Row:
    """Milliseconds of the kernels by implementation, with their launches as details."""
    times = {name: sum(kernel.seconds for kernel in members) * 1e3 for name, members in kernels.items()}
    return Row(group, what, "ms", times, skipped, details={"launches": {n: _launches(k) for n, k in kernels.items()}})


def _launches(kernels: list[Kernel]) -> float:
    return sum(kernel.launches for kernel in kernels)

"""Processes for the measurement of operators, which isolate kernels that crash."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.process import ChildFailed, in_fresh_process

Results = list[dict[str, Any]]
BY_NAME = ("seconds", "errors", "claimed", "declined", "skipped")
"""Entries of a result that are dicts by implementation."""


def measure_isolated(
    operator: str, names: list[str], dtype: str, device: str, threads: int
) -> tuple[Results, dict[str, str]]:
    """The results of `benchmarks.operators.measurement.measure`, and the reason for each implementation that failed.

    All implementations share a process. If it dies, for example by an illegal memory access, each implementation is
    measured with eager in a separate process.
    """
    from benchmarks.operators.measurement import measure

    arguments = {"operator": operator, "dtype": dtype, "device": device}
    try:
        return in_fresh_process(measure, threads=threads, implementations=names, **arguments), {}
    except ChildFailed as failure:
        others = [name for name in names if name != "eager"]
        if len(others) <= 1:
            return [], {(others or names)[0]: f"{operator}: {str(failure).splitlines()[-1]}"}
    print(" one by one ...", end="", flush=True, file=sys.stderr)
    parts = [measure_isolated(operator, ["eager", name], dtype, device, threads) for name in others]
    failed = {name: reason for _, part in parts for name, reason in part.items()}
    return _joined([results for results, _ in parts if results]), failed


def _joined(parts: list[Results]) -> Results:
    """Merge results of several processes, which have the same cases. Eager's values are those of the last process."""
    joined = []
    for same in zip(*parts, strict=True):
        by_name = {key: {n: value for part in same for n, value in part.get(key, {}).items()} for key in BY_NAME}
        joined.append({**same[0], **by_name})
    return joined

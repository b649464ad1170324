"""The processes in which operators are measured."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.process import ChildFailed, in_fresh_process

Results = list[dict[str, Any]]
BY_NAME = ("seconds", "errors", "claimed", "declined", "skipped")
"""What a result has for each implementation."""


def measured(operator: str, names: list[str], dtype: str, device: str, threads: int) -> tuple[Results, dict[str, str]]:
    """What `benchmarks.operators.measurement.measure` returns, and which implementations failed.

    All share a process, where they take turns. If that dies, as it does of a kernel that reads where it must not, each
    gets one of its own beside eager, so that those that work are measured.
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
    parts = [measured(operator, ["eager", name], dtype, device, threads) for name in others]
    failed = {name: reason for _, part in parts for name, reason in part.items()}
    return _joined([results for results, _ in parts if results]), failed


def _joined(parts: list[Results]) -> Results:
    """Results of several processes as one; all have the same cases. Eager's are those of the last."""
    joined = []
    for same in zip(*parts, strict=True):
        by_name = {key: {n: value for part in same for n, value in part.get(key, {}).items()} for key in BY_NAME}
        joined.append({**same[0], **by_name})
    return joined

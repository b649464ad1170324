"""Time of cached calls."""

from __future__ import annotations

import math

from benchmarks import programs
from benchmarks.availability import unavailable
from benchmarks.implementations import compile_with
from benchmarks.process import in_fresh_process
from benchmarks.row import Row, reached_by_thunder

CASES = {
    "small_arithmetic": "relu(a*b+a).sum(), 4x4",
    "linear_chain": "8 x Linear(16,16), no_grad",
    "small_llama": "Llama, 8 small layers, 1x64, no_grad",
}
LIMITS = {"small_arithmetic": ("<= 10 us and < compile", 10.0), "linear_chain": ("<= compile", math.inf)}
"""The goal as text, and its limit in microseconds."""


def measure(threads: int, implementations: list[str]) -> list[Row]:
    """Measure, and return the rows."""
    skipped = unavailable(implementations)
    names = [name for name in implementations if name not in skipped]
    seconds = {case: in_fresh_process(seconds_per_call, threads=threads, case=case, names=names) for case in CASES}
    return [_row(case, by_name, skipped) for case, by_name in seconds.items()]


def _row(case: str, seconds: dict[str, float], skipped: dict[str, str]) -> Row:
    values = {name: second * 1e6 for name, second in seconds.items()}
    if case not in LIMITS:
        return Row("cached call", CASES[case], "us", values, skipped)
    goal, limit = LIMITS[case]
    reached = reached_by_thunder(values, lambda value: value <= min(limit, values["compile"]))
    return Row("cached call", CASES[case], "us", values, skipped, goal, reached)


def seconds_per_call(case: str, names: list[str]) -> dict[str, float]:
    """Median seconds of a cached call, by implementation, measured in alternation in this process."""
    import torch

    from benchmarks.timing import interleaved_medians

    program, arguments = getattr(programs, case)()
    compiled = {name: compile_with(name, program) for name in names}
    calls = {name: lambda function=function: function(*arguments) for name, function in compiled.items()}
    # The arithmetic runs with grad mode enabled and inputs that do not require grad, as in user code; models under
    # no_grad.
    with torch.set_grad_enabled(case == "small_arithmetic"):
        expected = calls["eager"]()
        for call in calls.values():
            torch.testing.assert_close(call(), expected)
        return interleaved_medians(calls)

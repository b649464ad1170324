"""Time of cached calls under Dynamo with Thunder as its backend, and without Dynamo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks import programs
from benchmarks.process import in_fresh_process
from benchmarks.row import Row

CASES = {
    "small_arithmetic": "relu(a*b+a).sum(), 4x4",
    "linear_chain": "8 x Linear(16,16), no_grad",
    "small_arithmetic_step": "relu(a*b+a).sum(), 4x4, with backward",
}
WITHOUT_PROGRAM = "compile, backend eager"
"""Dynamo without a compiler: its guards, and the graph run by PyTorch."""
WITH_THUNDER = "compile, backend thunder"


def measure(threads: int) -> list[Row]:
    """Measure, and return the rows."""
    return [_row(case, in_fresh_process(seconds_per_call, threads=threads, case=case)) for case in CASES]


def _row(case: str, seconds: dict[str, float]) -> Row:
    return Row("cached call under Dynamo", CASES[case], "us", {name: one * 1e6 for name, one in seconds.items()}, {})


def seconds_per_call(case: str) -> dict[str, float]:
    """Median seconds of a cached call, by implementation, measured in alternation in this process.

    Thunder runs the operations with the reference executor, so that only the overhead differs.
    """
    import torch

    import thunder
    from benchmarks.timing import interleaved_medians

    program, arguments = getattr(programs, case.removesuffix("_step"))()
    trains = case.endswith("_step")
    arguments = [one.requires_grad_(trains) for one in arguments]
    options = {"executors": []}
    compiled: dict[str, Callable[..., Any]] = {
        "eager": program,
        WITHOUT_PROGRAM: torch.compile(program, backend="eager"),
        WITH_THUNDER: torch.compile(program, backend="thunder", options=options),
        "thunder[]": thunder.jit(program, **options),
    }

    def call(function: Callable[..., Any]) -> Any:
        result = function(*arguments)
        if trains:
            torch.autograd.grad(result, arguments)
        return result

    with torch.set_grad_enabled(case != "linear_chain"):
        calls = {name: lambda function=function: call(function) for name, function in compiled.items()}
        expected = calls["eager"]()
        for one in calls.values():
            torch.testing.assert_close(one(), expected)
        return interleaved_medians(calls)

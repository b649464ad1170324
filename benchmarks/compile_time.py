"""Compile time: acquisition of a large model, and the first call of a small model in a new process."""

from __future__ import annotations

import functools
import statistics
import time
from typing import TYPE_CHECKING, Any

from benchmarks import programs
from benchmarks.availability import unavailable
from benchmarks.implementations import compile_with, reported_stages, stages_of
from benchmarks.process import in_fresh_process
from benchmarks.row import Row, reached_by_thunder

REPEATS = 3
FIRST_CALL_REPEATS = 3
DEPTHS = (4, 8, 16, 32, 64)
GROUP = "compile time"

if TYPE_CHECKING:
    from thunder.report.compile_report import CompileReport


def measure(threads: int, implementations: list[str]) -> list[Row]:
    """Measure, and return the rows."""
    first_call_of = functools.partial(_first_call, threads, implementations)
    return [
        *_acquisition(threads),
        first_call_of("small_llama", "first call, Llama of 8 small layers, 1x64", 0.5),
        # PyTorch's fake tensors import torch._dynamo, which LitGPT imports as well. Without LitGPT the first call does.
        first_call_of("linear_chain", "first call, 8 x Linear(16,16), only torch imported"),
    ]


def _acquisition(threads: int) -> list[Row]:
    runs = {depth: _runs(threads, depth) for depth in DEPTHS}
    seconds = {depth: statistics.median(run["acquisition"] for run in runs[depth]) for depth in DEPTHS}
    rows = []
    for depth in DEPTHS:
        goal = "<= 0.8 s" if depth == 32 else ""
        what = f"acquire Llama-2-7B with guards, 1x512, meta, {depth} layers"
        reached = seconds[depth] <= 0.8 if goal else None
        first = runs[depth][0]
        details = {**first, "best": min(run["best"] for run in runs[depth])}
        rows.append(Row(GROUP, what, "s", {"thunder": seconds[depth]}, {}, goal, reached, details))
    # Linear means that an additional layer costs the same in small and large models. The minima exclude noise.
    best = {depth: min(run["best"] for run in runs[depth]) for depth in DEPTHS}
    early = (best[32] - best[4]) / 28
    late = (best[64] - best[32]) / 32
    what = "time per additional layer, 32 to 64 layers / 4 to 32"
    rows.append(Row(GROUP, what, "x", {"thunder": late / early}, {}, "linear: <= 1.25", late / early <= 1.25))
    return rows


def _runs(threads: int, depth: int) -> list[dict[str, float]]:
    return [in_fresh_process(acquisition, threads=threads, layers=depth) for _ in range(REPEATS)]


def acquisition(layers: int) -> dict[str, Any]:
    """Seconds of acquisition with guards in this process: the first, and the minimum of four more."""
    import torch

    import thunder

    model, arguments = programs.llama_7b_on_meta(layers)

    def compile_once() -> tuple[float, CompileReport]:
        compiled = thunder.jit(model)
        start = time.perf_counter()
        with torch.no_grad():
            compiled(*arguments)
        return time.perf_counter() - start, thunder.explain(compiled)

    first_call, report = compile_once()
    return {
        "acquisition": _acquisition_seconds(report),
        "best": min(_acquisition_seconds(compile_once()[1]) for _ in range(4)),
        "stages": reported_stages(report),
        "first call": first_call,
        "guards": len(report.entries[-1].guards),
    }


def _acquisition_seconds(report: CompileReport) -> float:
    """Guards are observed during acquisition and compiled in the stage ``prologue``."""
    stages = {name: seconds for name, seconds, _ in reported_stages(report)}
    return stages["acquisition"] + stages["prologue"]


def _first_call(threads: int, implementations: list[str], case: str, what: str, goal: float | None = None) -> Row:
    skipped = unavailable(implementations)
    names = [name for name in implementations if name not in skipped]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for _ in range(FIRST_CALL_REPEATS):
        for name in names:
            runs[name].append(in_fresh_process(first_call, threads=threads, name=name, case=case))
    values = {name: statistics.median(run["seconds"] for run in results) for name, results in runs.items()}
    details = {"stages": {name: results[0]["stages"] for name, results in runs.items()}}
    if goal is None:
        return Row(GROUP, what, "s", values, skipped, details=details)
    reached = reached_by_thunder(values, lambda seconds: seconds <= goal)
    return Row(GROUP, what, "s", values, skipped, f"<= {goal} s", reached, details)


def first_call(name: str, case: str) -> dict[str, Any]:
    """Seconds from the model to its first output, in this process, after the imports."""
    import torch

    import thunder  # noqa: F401 - imported before the measurement

    program, arguments = getattr(programs, case)()
    with torch.no_grad():
        start = time.perf_counter()
        compiled = compile_with(name, program)
        compiled(*arguments)
        seconds = time.perf_counter() - start
    return {"seconds": seconds, "stages": stages_of(name, compiled)}

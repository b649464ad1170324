"""Text generation with Hugging Face models: time per token, and number of compilations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks import table
from benchmarks.availability import unavailable
from benchmarks.comparison import Plan, compare, omitted
from benchmarks.row import Row, reached_by_thunder
from benchmarks.summary import COMPILATIONS, rows_of
from benchmarks.workload import Workload

COMPARED: Final = ("eager", "compile", "thunder[]", "thunder[inductor]")
METRICS: Final = ("step", COMPILATIONS)
CASES: Final = (("small-generator", "dynamic"), ("small-generator", "static"), ("small-sliding-generator", "dynamic"))
"""Models and kinds of caches."""
PROMPT: Final = 12
TOKENS: Final = 60
STEPS: Final = 2
TURNS: Final = 7
LIMIT: Final = 4
"""Most compilations of Thunder: sizes of a growing cache are symbolic after a few tokens."""


def measure(threads: int, implementations: Sequence[str]) -> list[Row]:
    """Measure, and return the rows."""
    skipped = unavailable(implementations)
    names = [name for name in implementations if name not in skipped]
    sizes = {"batch": 1, "sequence": PROMPT, "steps": STEPS, "new_tokens": TOKENS}
    workloads = [Workload(model, "generation", "float32", "cpu", **sizes, kv_cache=cache) for model, cache in CASES]
    plan = Plan(workloads, names, noise=0, threads=threads, turns=TURNS)
    table.notes(omitted(plan))
    runs = compare(plan, after=len)
    return [_with_goal(row) for row in rows_of(runs, METRICS, by_metric=True, unavailable=skipped)]


def _with_goal(row: Row) -> Row:
    if row.unit:
        return row
    reached = reached_by_thunder(row.values, lambda count: count <= LIMIT)
    return replace(row, goal=f"at most {LIMIT}", reached=reached)

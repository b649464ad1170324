"""From runs to rows, and from rows to tables."""

import io
import math

import pytest
from rich.console import Console

from benchmarks import table
from benchmarks.comparison import Run
from benchmarks.losses import allowed, largest_difference
from benchmarks.row import Row
from benchmarks.summary import rows_of
from benchmarks.workload import Workload

WORKLOAD = Workload("m", "training", "float32", "cpu", 2, 8, 4, "adamw")


def _run(name, steps=(0.1, 0.2, 0.3), losses=(1.0, 2.0), first=1.0, **more):
    memory = {"allocated": 2**20, "resident": 2**22}
    result = {"steps": list(steps), "losses": list(losses), "first": first, "host": [], "items": 16, "memory": memory}
    return Run(WORKLOAD, name, result=result, **more)


def _row(rows, what):
    return next(row for row in rows if what in row.what)


def test_a_value_is_the_median_of_the_rounds_medians():
    rows = rows_of([_run("eager"), _run("eager", (0.4, 0.5, 0.6), round=1), _run("eager", (0.2, 0.3, 0.4), round=2)])
    row = _row(rows, "training step")
    assert row.values["eager"] == pytest.approx(300)
    assert row.spread["eager"] == pytest.approx((100, 600))
    assert _row(rows, "tokens").values["eager"] == pytest.approx(16 / 0.3, rel=0.2)
    assert _row(rows, "peak memory of").values["eager"] == 4


def test_first_steps_are_told_by_cache_and_a_run_that_fills_caches_has_no_steps():
    runs = [_run("c", first=9.0, timed=False, steps=(7.0,)), _run("c", first=2.0, cache="warm")]
    rows = rows_of(runs)
    assert _row(rows, "empty caches").values == {"c": 9.0}
    assert _row(rows, "filled caches").values == {"c": 2.0}
    assert _row(rows, "training step").spread["c"][1] == pytest.approx(300)


def test_losses_are_judged_by_the_farthest_sample_of_the_noise():
    noise = [_run("eager", losses=(1.0, 2.0 * (1 + d)), kernels=str(d), reference=True) for d in (0.001, 0.003)]
    row = _row(rows_of([_run("eager"), _run("a", losses=(1.0, 2.01)), *noise]), "losses")
    assert row.reached
    assert row.values == pytest.approx({"eager": 0.3, "a": 0.5})
    assert not _row(rows_of([_run("eager"), _run("a", losses=(1.0, 2.02)), *noise]), "losses").reached
    assert not _row(rows_of([_run("eager"), _run("a", losses=(1.0, math.nan)), *noise]), "losses").reached


def test_of_float8_the_last_losses_count_and_not_the_noise():
    losses = [2.0] * 18 + [1.0, 1.0]
    coarse = [2.2] * 18 + [1.004, 1.008]
    runs = [_run("eager", losses=losses), _run("torchao-float8", losses=coarse), _run("a", losses=losses)]
    rows = rows_of(runs)
    assert _row(rows, "losses").reached
    last = _row(rows, "loss after 20 steps")
    assert last.reached
    assert last.values == pytest.approx({"torchao-float8": 0.6, "a": 0})
    assert not _row(rows_of([runs[0], _run("thunder[te]", losses=[2.0] * 19 + [1.1])]), "loss after").reached
    assert not any("loss after" in row.what for row in rows_of([runs[0], runs[2]]))


def test_what_is_not_available_is_a_footnote():
    rows = rows_of([_run("eager")], unavailable={"thunder[te]": "not available: no plugin"})
    assert _row(rows, "training step").skipped == {"thunder[te]": "not available: no plugin"}


def test_a_run_that_failed_is_a_footnote_and_no_number():
    failed = Run(WORKLOAD, "a", failure="Traceback\nValueError: no")
    row = _row(rows_of([_run("eager"), failed]), "training step")
    assert set(row.values) == {"eager"}
    assert row.skipped == {"a": "ValueError: no"}


def test_rows_by_metric_stand_together():
    other = Run(Workload("n", "training", "float32", "cpu", 2, 8, 4, "adamw"), "eager", result=_run("eager").result)
    rows = rows_of([_run("eager"), other], ["step", "cold"], by_metric=True)
    assert [row.group for row in rows] == ["training step"] * 2 + ["first training step, empty caches"] * 2


def test_differences_are_relative_and_not_silent_about_nan():
    assert largest_difference([1.0, 2.2], [1.0, 2.0]) == pytest.approx(0.1)
    assert math.isnan(largest_difference([1.0, math.nan], [1.0, 2.0]))
    assert math.isnan(largest_difference([math.nan, 2.0], [1.0, 2.0]))
    assert allowed([], "bf16-true") == 2**-7
    assert allowed([0.01, 0.02], "bf16-true") == 0.04


def test_table_shows_values_ratios_spreads_goals_and_what_was_skipped():
    rows = [
        Row("call", "small", "us", {"eager": 4.0, "thunder[a]": 6.0}, {"compile": "no compiler"}, "<= 10 us", True),
        Row("memory", "model", "MiB", {"eager": 2.0, "compile": 1.5, "thunder": 3.0}, {}, "<= 1", False),
        Row("time", "step", "ms", {"eager": 2.0}, {}, spread={"eager": (1.5, 2500.0)}),
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    table.show(rows, console=console)
    text = console.export_text()
    assert "6 us 1.50x" in text
    assert "thunder[a]" in text
    assert "3 MiB 2.00x" in text  # torch.compile comes before eager as the baseline
    assert "1.333x" not in text
    assert "NOT reached" in text
    assert "1.500 to 2500" in text
    assert "compile skipped: no compiler" in text

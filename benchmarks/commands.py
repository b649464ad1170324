"""The functions that the commands run."""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import chart, machine, markdown, options, report, result_file, table
from benchmarks.availability import required
from benchmarks.comparison import Plan, Run, compare, missing, omitted
from benchmarks.figures import FIGURES
from benchmarks.implementations import checked
from benchmarks.operators import command as operators
from benchmarks.profiling.processes import profile_all
from benchmarks.profiling.rows import rows_of as profile_rows
from benchmarks.row import BEST, Row
from benchmarks.selection import InvalidOptions, Selection, device_of, implementations, select
from benchmarks.summary import ALL, rows_of

REPORT = "report.json"
"""The file of ``report`` in the current folder, without ``--json``."""
INCOMPLETE = 3
"""The exit code of ``report`` if its budget did not suffice."""


def compare_models(chosen: argparse.Namespace) -> int:
    """``train-step``, ``inference``, ``models``: implementations on models, each in a separate process."""
    if chosen.list_models:
        return _list_models()
    selection = select(chosen)
    type_ = selection.device["type"]
    turns = options.TURNS[type_] if chosen.turns is None else chosen.turns
    if turns and type_ != "cpu":
        raise InvalidOptions("--turns is for a CPU: on a GPU the processes run one after the other")
    plan = Plan(
        selection.workloads, selection.names, chosen.rounds, chosen.cache, chosen.noise, selection.threads, turns
    )
    metrics = chosen.metrics or ALL
    table.notes(omitted(plan))
    return _run(
        chosen,
        selection,
        lambda after: compare(plan, after=after),
        lambda runs: rows_of(runs, metrics, chosen.by_metric, selection.unavailable),
    )


def profile(chosen: argparse.Namespace) -> int:
    """``profile``: the kernels of training steps, each implementation in a separate process."""
    if chosen.list_models:
        return _list_models()
    selection = select(chosen)
    if chosen.folder:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    measure = functools.partial(
        profile_all,
        selection.workloads,
        selection.names,
        threads=selection.threads,
        together=chosen.together,
        folder=chosen.folder,
    )
    return _run(
        chosen,
        selection,
        lambda after: measure(after=after),
        lambda runs: profile_rows(runs, selection.unavailable, chosen.kernels),
    )


def measure_figures(chosen: argparse.Namespace) -> int:
    """The benchmarks of `FIGURES`, on their own programs or on the models of ``--model``."""
    if getattr(chosen, "list_models", False) or getattr(chosen, "model", None) or getattr(chosen, "layers", None):
        chosen.steps = chosen.steps or 10
        return compare_models(chosen)
    threads = chosen.threads or 1
    names = required(checked(chosen.impl), "cpu") if chosen.impl else None
    environment = _environment(threads)
    rows: list[Row] = []
    for name in chosen.figures:
        start = time.perf_counter()
        print(f"{name} ...", end="", flush=True, file=sys.stderr)
        rows += FIGURES[name].rows(threads, names)
        print(f" {time.perf_counter() - start:.0f} s", file=sys.stderr)
        _write(chosen, environment, rows, baseline=chosen.baseline)
    _show(chosen, environment, rows)
    return 0


def measure_operators(chosen: argparse.Namespace) -> int:
    """``operators``: single operators by each executor alone, and by other implementations."""
    if chosen.list_operators:
        print(operators.listing())
        return 0
    device = device_of(chosen.device)
    threads = chosen.threads or options.THREADS[device["type"]]
    environment = _environment(threads) | {"device": device}
    rows, notes, failed = operators.measure(
        chosen,
        device["type"],
        threads,
        after=lambda rows: _write(chosen, environment, rows, baseline=chosen.baseline),
    )
    table.show(rows, chosen.baseline)
    table.notes([*notes, *result_file.summary_lines(environment)])
    _draw(chosen, [row for row in rows if row.unit == "us"])
    return 1 if failed else 0


def measure_report(chosen: argparse.Namespace) -> int:
    """``report``: the models of the suite. Returns 1 if a run failed, `INCOMPLETE` if the time was too short."""
    if chosen.list_models:
        return _list_models()
    device = device_of(chosen.device)
    kind = device["type"]
    chosen.baseline = chosen.baseline or BEST
    names, unavailable = implementations(chosen, kind, report.IMPLEMENTATIONS)
    selection = report.selected(chosen, kind)
    plan = report.plan_of(chosen, selection.workloads, names, kind)
    environment = _environment(plan.threads) | {"device": device, "report": True}
    chosen.json = chosen.json or Path(REPORT)
    finished = [] if chosen.restart else report.earlier_runs(chosen.json, environment)
    if chosen.retry:
        finished = [run for run in finished if not run.failure]

    def write(runs: list[Run]) -> list[Row]:
        rows = report.rows(runs, selection.skipped, unavailable, kind)
        _write(chosen, environment, rows, baseline=chosen.baseline, runs=[run.as_json() for run in runs])
        return rows

    against = chosen.against or report.last_of_machine(environment)
    if against:
        report.changes([], against)  # before the measurement, which takes long
    runs = compare(plan, write, finished)
    rows = write(runs)
    table.show(rows, chosen.baseline)
    notes = [*omitted(plan), *report.incomplete_means(rows)]
    if against:
        changes, more = report.changes(runs, against)
        table.show(changes)
        notes += more
    table.notes([*notes, *result_file.summary_lines(environment), f"wrote {chosen.json}"])
    if chosen.chart:
        chart.draw_ratios([row for row in rows if row.unit == "ms" and row.goal], chosen.chart)
        table.notes([f"wrote the chart {chosen.chart}"])
    left, failures = missing(plan, runs), [run for run in runs if run.failure]
    table.notes(f"FAILED: {run.name}: {run.failure.splitlines()[-1]}" for run in failures)
    if left:
        table.notes([f"{len(left)} runs are left, the first is {left[0].name}; the same command continues"])
        return INCOMPLETE
    return 1 if failures else 0


def show_results(chosen: argparse.Namespace) -> int:
    """``show``: tables and charts of result files, also as Markdown, and the README's section of a report."""
    results = [result_file.read(path) for path in chosen.files]
    names = dict.fromkeys(name for _, rows in results for row in rows for name in row.values)
    if chosen.baseline and chosen.baseline not in (*names, BEST):
        raise InvalidOptions(f"--baseline {chosen.baseline} is in none of the results; there are {', '.join(names)}")
    if chosen.readme:
        if len(chosen.files) > 1:
            raise InvalidOptions("--readme takes one report: the README's figures are of one commit")
        markdown.update_readme(chosen.files[0])
        return 0
    every: list[Row] = []
    for path, (environment, rows) in zip(chosen.files, results, strict=True):
        baseline = chosen.baseline or environment.get("baseline")
        if chosen.markdown:
            print(markdown.tables(rows, baseline))
        else:
            table.show(rows, baseline)
        table.notes([str(path), *result_file.summary_lines(environment)])
        every += rows
    _draw(chosen, every)
    return 0


def _run(
    chosen: argparse.Namespace,
    selection: Selection,
    measure: Callable[[Callable[[list[Run]], None]], list[Run]],
    rows: Callable[[list[Run]], list[Row]],
) -> int:
    """Measure, write the rows after each run, and show them. Returns 1 if a run failed."""
    environment = _environment(selection.threads) | {"device": selection.device}

    def write(runs: list[Run]) -> None:
        _write(chosen, environment, rows(runs), baseline=chosen.baseline, runs=[run.as_json() for run in runs])

    runs = measure(write)
    _show(chosen, environment, rows(runs))
    failures = [run for run in runs if run.failure]
    table.notes(f"FAILED: {run.name}: {run.failure.splitlines()[-1]}" for run in failures)
    return 1 if failures else 0


def _list_models() -> int:
    from benchmarks.models.catalogue import listing

    print(listing())
    return 0


def _environment(threads: int) -> dict[str, Any]:
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    return machine.describe(threads) | {"command": command}


def _show(chosen: argparse.Namespace, environment: dict[str, Any], rows: list[Row]) -> None:
    table.show(rows, chosen.baseline)
    table.notes(result_file.summary_lines(environment))
    _draw(chosen, rows)


def _draw(chosen: argparse.Namespace, rows: list[Row]) -> None:
    if chosen.chart:
        chart.draw(rows, chosen.chart, chosen.baseline)
        table.notes([f"wrote the chart {chosen.chart}"])


def _write(chosen: argparse.Namespace, environment: dict[str, Any], rows: list[Row], **more: Any) -> None:
    paths = [chosen.json] if chosen.json else []
    paths += [result_file.default_path(environment)] if chosen.keep else []
    for path in paths:
        result_file.write(path, environment, rows, **more)

"""What the commands do."""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks import chart, machine, options, stored, table
from benchmarks.asked import Asked, Refused, asked_of, device_of
from benchmarks.availability import required
from benchmarks.comparison import compare
from benchmarks.figures import FIGURES
from benchmarks.implementations import checked
from benchmarks.operators import command as operators
from benchmarks.plan import Plan, Run
from benchmarks.profiling.processes import profiled
from benchmarks.profiling.rows import rows_of as profile_rows
from benchmarks.row import Row
from benchmarks.summary import ALL, rows_of


def compare_models(chosen: argparse.Namespace) -> int:
    """``train-step``, ``inference``, ``models``: implementations on models, each in its own process."""
    if chosen.list_models:
        return _list_models()
    asked = asked_of(chosen)
    type_ = asked.device["type"]
    turns = options.TURNS[type_] if chosen.turns is None else chosen.turns
    if turns and type_ != "cpu":
        raise Refused("--turns is for a CPU: on a GPU the processes run one after the other")
    plan = Plan(asked.workloads, asked.names, chosen.rounds, chosen.cache, chosen.noise, asked.threads, turns)
    metrics = chosen.metrics or ALL
    return _run(
        chosen,
        asked,
        lambda after: compare(plan, after=after),
        lambda runs: rows_of(runs, metrics, chosen.by_metric, asked.absent),
    )


def profile(chosen: argparse.Namespace) -> int:
    """``profile``: where the time of training steps goes, each implementation in its own process."""
    if chosen.list_models:
        return _list_models()
    asked = asked_of(chosen)
    if chosen.folder:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    measured = functools.partial(
        profiled, asked.workloads, asked.names, threads=asked.threads, together=chosen.together, folder=chosen.folder
    )
    return _run(
        chosen,
        asked,
        lambda after: measured(after=after),
        lambda runs: profile_rows(runs, asked.absent, chosen.kernels),
    )


def measure_figures(chosen: argparse.Namespace) -> int:
    """The benchmarks with programs of their own; a model instead, if one is named."""
    if getattr(chosen, "list_models", False) or getattr(chosen, "model", None) or getattr(chosen, "layers", None):
        chosen.steps = chosen.steps or 10
        return compare_models(chosen)
    threads = chosen.threads or 1
    names = required(checked(chosen.impl), "cpu") if chosen.impl else None
    circumstances = _circumstances(threads)
    rows: list[Row] = []
    for name in chosen.figures:
        start = time.perf_counter()
        print(f"{name} ...", end="", flush=True, file=sys.stderr)
        rows += FIGURES[name].rows(threads, names)
        print(f" {time.perf_counter() - start:.0f} s", file=sys.stderr)
        _write(chosen, circumstances, rows, baseline=chosen.baseline)
    _show(chosen, circumstances, rows)
    return 0


def measure_operators(chosen: argparse.Namespace) -> int:
    """``operators``: single operators by each executor alone, and by others."""
    if chosen.list_operators:
        print(operators.listing())
        return 0
    device = device_of(chosen.device)
    threads = chosen.threads or options.THREADS[device["type"]]
    circumstances = _circumstances(threads) | {"device": device}
    rows, notes, failed = operators.rows(
        chosen,
        device["type"],
        threads,
        after=lambda rows: _write(chosen, circumstances, rows, baseline=chosen.baseline),
    )
    table.show(rows, chosen.baseline)
    table.notes([*notes, *stored.facts(circumstances)])
    _draw(chosen, [row for row in rows if row.unit == "us"])
    return 1 if failed else 0


def show_results(chosen: argparse.Namespace) -> int:
    """``show``: tables and charts of results that were written before."""
    results = [stored.read(path) for path in chosen.files]
    names = dict.fromkeys(name for _, rows in results for row in rows for name in row.values)
    if chosen.baseline and chosen.baseline not in names:
        raise Refused(f"--baseline {chosen.baseline} is in none of the results; there are {', '.join(names)}")
    every: list[Row] = []
    for path, (circumstances, rows) in zip(chosen.files, results, strict=True):
        table.show(rows, chosen.baseline or circumstances.get("baseline"))
        table.notes([str(path), *stored.facts(circumstances)])
        every += rows
    _draw(chosen, every)
    return 0


def _run(
    chosen: argparse.Namespace,
    asked: Asked,
    measure: Callable[[Callable[[list[Run]], None]], list[Run]],
    found: Callable[[list[Run]], list[Row]],
) -> int:
    """Measure, writing the rows found so far after each run; show them; 1 if a run failed."""
    circumstances = _circumstances(asked.threads) | {"device": asked.device}

    def keep(runs: list[Run]) -> None:
        _write(chosen, circumstances, found(runs), baseline=chosen.baseline, runs=[run.as_json() for run in runs])

    runs = measure(keep)
    _show(chosen, circumstances, found(runs))
    failures = [run for run in runs if run.failure]
    table.notes(f"FAILED: {run.name}: {run.failure.splitlines()[-1]}" for run in failures)
    return 1 if failures else 0


def _list_models() -> int:
    from benchmarks.models.catalogue import listing

    print(listing())
    return 0


def _circumstances(threads: int) -> dict[str, Any]:
    command = shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])
    return machine.describe(threads) | {"command": command}


def _show(chosen: argparse.Namespace, circumstances: dict[str, Any], rows: list[Row]) -> None:
    table.show(rows, chosen.baseline)
    table.notes(stored.facts(circumstances))
    _draw(chosen, rows)


def _draw(chosen: argparse.Namespace, rows: list[Row]) -> None:
    if chosen.chart:
        chart.draw(rows, chosen.chart, chosen.baseline)
        table.notes([f"drawn to {chosen.chart}"])


def _write(chosen: argparse.Namespace, circumstances: dict[str, Any], rows: list[Row], **more: Any) -> None:
    paths = [chosen.json] if chosen.json else []
    paths += [stored.named_by_date(circumstances)] if chosen.keep else []
    for path in paths:
        stored.write(path, circumstances, rows, **more)

"""What the commands do."""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from typing import Any

from benchmarks import chart, machine, options, stored, table
from benchmarks.availability import required, unavailable
from benchmarks.comparison import compare
from benchmarks.figures import FIGURES
from benchmarks.implementations import COMPARED, checked
from benchmarks.models.subject import UnknownModel
from benchmarks.operators import command as operators
from benchmarks.plan import Plan, Run
from benchmarks.process import ChildFailed, in_fresh_process
from benchmarks.row import Row
from benchmarks.summary import ALL, rows_of


class Refused(ValueError):
    """The options do not go together, or ask for what is not there."""


def compare_models(chosen: argparse.Namespace) -> int:
    """``train-step``, ``inference``, ``models``: implementations on models, each in its own process."""
    if chosen.list_models:
        from benchmarks.models.catalogue import listing

        print(listing())
        return 0
    if chosen.chart:
        chart.check()
    device = _device(chosen.device)
    try:
        workloads = options.workloads(chosen, chosen.tasks, device["type"])
    except (UnknownModel, ModuleNotFoundError, ValueError) as error:
        raise Refused(str(error)) from error
    threads = chosen.threads or options.THREADS[device["type"]]
    names = checked(chosen.impl or COMPARED)
    absent = unavailable(names, device["type"])
    names = [name for name in names if name not in absent]
    if not names:
        raise Refused("; ".join(f"{name}: {reason}" for name, reason in absent.items()))
    if chosen.baseline and chosen.baseline not in names:
        raise Refused(f"--baseline {chosen.baseline} is not among the implementations: {', '.join(names)}")
    turns = options.TURNS[device["type"]] if chosen.turns is None else chosen.turns
    if turns and device["type"] != "cpu":
        raise Refused("--turns is for a CPU: on a GPU the processes run one after the other")
    plan = Plan(workloads, names, chosen.rounds, chosen.cache, chosen.noise, threads, turns)
    circumstances = _circumstances(threads) | {"device": device}
    metrics = chosen.metrics or ALL

    def found(runs: list[Run]) -> list[Row]:
        return rows_of(runs, metrics, chosen.by_metric, {name: f"not available: {why}" for name, why in absent.items()})

    def keep(runs: list[Run]) -> None:
        rows = found(runs)
        _write(chosen, circumstances, rows, baseline=chosen.baseline, runs=[run.as_json() for run in runs])

    runs = compare(plan, after=keep)
    _show(chosen, circumstances, found(runs))
    failures = [run for run in runs if run.failure]
    table.notes(f"FAILED: {run.name}: {run.failure.splitlines()[-1]}" for run in failures)
    return 1 if failures else 0


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
    if chosen.chart:
        chart.check()
    device = _device(chosen.device)
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
    every: list[Row] = []
    for path, (circumstances, rows) in zip(chosen.files, results, strict=True):
        table.show(rows, chosen.baseline or circumstances.get("baseline"))
        table.notes([str(path), *stored.facts(circumstances)])
        every += rows
    _draw(chosen, every)
    return 0


def _device(asked: str) -> dict[str, Any]:
    if asked == "cpu":
        return machine.device(asked)
    try:
        return in_fresh_process(machine.device, threads=1, asked=asked)
    except ChildFailed as error:
        raise Refused(str(error).splitlines()[-1]) from error


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

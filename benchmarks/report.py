"""``report``: the models of the suite on one machine, with ratios, means, and changes since the last report.

A report is one file of results, which is written after each run. The same command continues it: only runs that it lacks
are started. All runs of a file are of one state of the sources, one machine and one set of versions.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import options, result_file
from benchmarks.comparison import Plan, Run
from benchmarks.models import catalogue, suite
from benchmarks.models.model import MissingPackage, UnknownModel
from benchmarks.result_file import InvalidResult
from benchmarks.row import BEST, Row, is_thunder, reached_by_thunder
from benchmarks.selection import InvalidOptions
from benchmarks.summary import COMPILATIONS, LOSS, TITLES, rows_of, title_of, whole_title_of
from benchmarks.workload import Workload

IMPLEMENTATIONS = ("eager", "compile", "compile-reduce-overhead", "thunder")
STEPS = {"training": 30, "forward": 30, "generation": 6}
"""Steps of a process; on a GPU the last half are timed."""
TURNS = {"cuda": 0, "cpu": 20}
METRICS = ("step", "allocated", "reserved", "cold", "warm", "host", COMPILATIONS, LOSS)
STATE = ("sources", "python", "versions", "processor", "threads", "device")
"""Entries of the environment that are equal for all runs of a report."""
EACH = {
    ("cuda", "step"): {"training": 1.0, "forward": 1.0, "generation": 1.0},
    ("cuda", "allocated"): {"training": 1.0, "forward": 1.0, "generation": 1.0},
    ("cpu", "step"): {"training": 0.95, "forward": 0.9, "generation": 1.0},
}
"""Goals of Thunder's ratio to the best of the others for each model, by device and metric, by task."""
MEAN = {("cuda", "step"): 0.85}
"""Goals of the geometric means of the ratios."""
COMPARED = {"step": "time", "allocated": "peak memory", "cold": "first step, without eager"}
"""Metrics with geometric means and changes, and their names there."""
WITH_EAGER = ("step", "allocated")
"""Those in whose means eager is one of the others. Its first step compiles nothing."""
MINUTE = 60


@dataclass(frozen=True)
class Selected:
    """The workloads of a report, and those that this machine cannot run, by their reasons."""

    workloads: list[Workload]
    skipped: list[tuple[Workload, str]]


def selected(chosen: argparse.Namespace, device: str) -> Selected:
    """What the options select of the suite, and of other models that ``--model`` names.

    Raises:
        InvalidOptions: there is no such model, or nothing is selected.
    """
    small = device == "cpu" if chosen.small is None else chosen.small
    workloads: list[Workload] = []
    skipped: list[tuple[Workload, str]] = []
    for name in chosen.model or _names(small):
        reason = ""
        try:
            catalogue.check(name)
        except MissingPackage as error:
            reason = str(error)
        except UnknownModel as error:
            raise InvalidOptions(str(error)) from error
        for workload in _workloads(name, chosen, device):
            if reason:
                skipped.append((workload, reason))
            else:
                workloads.append(workload)
    if not workloads and not skipped:
        raise InvalidOptions(f"no model of the selection has one of the tasks {', '.join(chosen.task)}")
    return Selected(workloads, skipped)


def _names(small: bool) -> list[str]:
    if not small:
        return list(suite.SUITE)
    return [name + suite.SUFFIX for name, member in suite.SUITE.items() if member.small]


def _workloads(name: str, chosen: argparse.Namespace, device: str) -> list[Workload]:
    member = suite.SUITE.get(name) or suite.SUITE.get(name.removesuffix(suite.SUFFIX))
    tasks = member.tasks if member else suite.BOTH
    usual = member.precisions if member and device == "cuda" else (options.PRECISION[device],)
    found = []
    for task in tasks:
        for precision in chosen.precision or usual:
            if task in chosen.task:
                steps = chosen.steps or STEPS[task]
                optimizer = "adamw" if task == "training" else "none"
                found += options.workloads_of(name, task, precision, device, steps=steps, optimizer=optimizer)
    return found


def plan_of(chosen: argparse.Namespace, workloads: Sequence[Workload], names: Sequence[str], device: str) -> Plan:
    """The plan of the runs."""
    return Plan(
        workloads,
        names,
        rounds=chosen.rounds,
        cache=chosen.cache,
        noise=chosen.noise,
        threads=chosen.threads or options.THREADS[device],
        turns=TURNS[device] if chosen.turns is None else chosen.turns,
        side_by_side=chosen.side_by_side,
        limit=chosen.limit,
        deadline=None if chosen.budget is None else time.monotonic() + chosen.budget * MINUTE,
    )


def earlier_runs(path: Path, environment: Mapping[str, Any]) -> list[Run]:
    """The runs of the report that a file contains; empty if there is no such file.

    Raises:
        InvalidResult: the file is no report.
        InvalidOptions: its runs are of another state of the sources, or of another machine.
    """
    if not path.exists():
        return []
    content, _ = result_file.read(path)
    runs = runs_of(path, content)
    different = [name for name in STATE if content.get(name) != environment[name]]
    if different:
        raise InvalidOptions(
            f"{path} is a report of commit {content['commit']} with other {', '.join(different)}: "
            "--restart replaces it, --json FILE writes another one"
        )
    return runs


def runs_of(path: Path, content: Mapping[str, Any]) -> list[Run]:
    """The runs of a report. Raises InvalidResult if the file is none."""
    try:
        if not content["report"]:
            raise KeyError("report")
        return [Run.from_json(run) for run in content["runs"]]
    except (KeyError, TypeError) as error:
        raise InvalidResult(f"{path} is not a report: {error}") from error


def rows(
    runs: Sequence[Run], skipped: Iterable[tuple[Workload, str]], unavailable: Mapping[str, str], device: str
) -> list[Row]:
    """The tables: each quantity of each task, with a row for each model, and the geometric means last."""
    found: list[Row] = []
    means: list[Row] = []
    for task in options.REPORT_TASKS:
        absent = [(workload, reason) for workload, reason in skipped if workload.task == task]
        for metric in METRICS:
            group = _group(runs, task, metric, unavailable)
            limit = EACH.get((device, metric), {}).get(task)
            group = [_with_goal(row, limit) for row in group] if limit else group
            if metric == "step":
                group += [_absent(workload, reason, group) for workload, reason in absent]
            found += group
            if metric in COMPARED and (mean := _mean(task, metric, group, device)):
                means.append(mean)
    return found + means


def _group(runs: Sequence[Run], task: str, metric: str, unavailable: Mapping[str, str] | None = None) -> list[Row]:
    """A row for each workload of the task, under a title that names the task."""
    members = [run for run in runs if run.workload.task == task]
    group = rows_of(members, [metric], by_metric=True, unavailable=unavailable)
    titles = (title_of(members[0].workload), whole_title_of(members[0].workload)) if members else ("", "")
    named = [any(title in row.group for title in titles) for row in group]
    return [row if name else replace(row, group=f"{row.group}, {titles[1]}") for row, name in zip(group, named)]


def _with_goal(row: Row, limit: float) -> Row:
    best = row.best_of_others()
    reached = reached_by_thunder(row.values, lambda value: value <= limit * best) if best else None
    return replace(row, goal=f"<= {limit:.2f} x the best", reached=reached)


def _absent(workload: Workload, reason: str, group: Sequence[Row]) -> Row:
    title = group[0].group if group else title_of(workload)
    return Row(title, workload.label, "ms", {}, {workload.label: reason})


def _mean(task: str, metric: str, group: Sequence[Row], device: str) -> Row | None:
    """The geometric means of the ratios to the best of the others; None if there is no ratio of Thunder."""
    if metric not in WITH_EAGER:
        group = [replace(row, values={name: x for name, x in row.values.items() if name != "eager"}) for row in group]
    ratios = [ratios for row in group if any(map(is_thunder, ratios := row.ratios(BEST)))]
    names = dict.fromkeys(name for each in ratios for name in each)
    if not ratios:
        return None
    samples = {name: [each[name] for each in ratios if name in each] for name in names}
    values = {name: geometric_mean(each) for name, each in samples.items()}
    limit = MEAN.get((device, metric))
    return Row(
        "geometric means of the ratios to the best of the others",
        f"{COMPARED[metric]}, {TITLES[task]}, {len(ratios)} {'model' if len(ratios) == 1 else 'models'}",
        "x",
        values,
        {},
        f"<= {limit:.2f}" if limit else "",
        reached_by_thunder(values, lambda value: value <= limit) if limit else None,
        {"models": {name: len(each) for name, each in samples.items()}},
    )


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of those that are positive (a peak of memory may be 0); nan if none is."""
    logarithms = [math.log(value) for value in values if value > 0]
    return math.exp(statistics.mean(logarithms)) if logarithms else math.nan


def incomplete_means(found: Sequence[Row]) -> list[str]:
    """A line for each implementation whose mean is over fewer models than Thunder's."""
    lines = []
    for row in found:
        counts: dict[str, int] = (row.details or {}).get("models", {})
        most = max(counts.values(), default=0)
        lines += [f"{row.what}: the mean of {name} is over {count}" for name, count in counts.items() if count < most]
    return lines


def last_of_machine(environment: Mapping[str, Any]) -> Path | None:
    """The newest report among the results that is of the same kind of machine and of other sources."""
    found = []
    for path in result_file.RESULTS.glob("*.json"):
        content, _ = result_file.read(path)
        if not content.get("report") or content["sources"] == environment["sources"]:
            continue
        if _machine(content) == _machine(environment):
            found.append((content["date"], path))
    return max(found)[1] if found else None


def _machine(environment: Mapping[str, Any]) -> tuple[object, ...]:
    device = environment["device"]
    return (device["name"],) if device["type"] != "cpu" else (environment["processor"], environment["threads"])


def changes(runs: Sequence[Run], path: Path) -> tuple[list[Row], list[str]]:
    """Values divided by those of another report with their geometric means, and lines about what it alone has.

    Eager and torch.compile are among the values: their changes are those of the machine and of their versions.
    """
    content, _ = result_file.read(path)
    before = runs_of(path, content)
    title = f"divided by those of {path.name}, commit {content['commit']}"
    found: list[Row] = []
    for metric, task in itertools.product(COMPARED, options.REPORT_TASKS):
        earlier = {row.what: row.values for row in _group(before, task, metric)}
        group = []
        for row in _group(runs, task, metric):
            old = earlier.get(row.what, {})
            if values := {name: value / old[name] for name, value in row.values.items() if old.get(name)}:
                group.append(Row(f"{row.group}, {title}", row.what, "x", values, {}))
        names = dict.fromkeys(name for row in group for name in row.values)
        means = {name: geometric_mean(row.values[name] for row in group if name in row.values) for name in names}
        found += [*group, Row(group[0].group, "geometric mean", "x", means, {})] if len(group) > 1 else group
    now = {(run.workload.task, run.workload.label) for run in runs}
    gone = dict.fromkeys((run.workload.task, run.workload.label) for run in before)
    notes = [f"only in {path.name}: {task} {label}" for task, label in gone if (task, label) not in now]
    return found, notes if found else [*notes, f"{path.name} has no measurement of this report"]

"""The differences of two reports, or of two files of saved programs."""

from __future__ import annotations

import difflib
import json
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thunder._libraries import library
from thunder.report.amounts import bytes_text, duration
from thunder_core.errors import OptionError


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        subject: "options", "programs", "decisions", "operations", "kernels", "memory", "time", "guards", "state" or
            "source".
        name: what differs: an option, a pass, an op, a line of source.
        before, after: the value in the first and in the second file; empty where it is not there.
    """

    subject: str
    name: str
    before: str
    after: str


def differences(first: str | Path, second: str | Path) -> list[Change]:
    """The differences of two reports (`CompileReport.to_json`, ``thunder explain --json``), of the latest program of
    each, or of two files of `thunder.save`.

    Raises:
        OptionError: a file is neither, or they are of two kinds.
        SavedProgramError: a file of saved programs is damaged.
        OSError: a file cannot be read.
    """
    pair = (Path(first), Path(second))
    saved = [zipfile.is_zipfile(path) for path in pair]
    for path in pair:
        path.stat()  # is_zipfile answers False for a file that is not there
    if saved == [True, True]:
        return list(_of_archives(*pair))
    if any(saved):
        raise OptionError(f"{first} and {second} are a report and a file of saved programs")
    return list(_of_reports(*map(_report, pair)))


def _report(path: Path) -> dict[str, Any]:
    advice = ("thunder explain PROGRAM --json > FILE and thunder.explain(model).to_json() write reports",)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OptionError(f"{path} is no report: {error}", advice=advice) from error
    report = data.get("report", data) if isinstance(data, dict) else {}
    if not isinstance(report, dict) or not {"entries", "options", "measured"} <= report.keys():
        raise OptionError(f"{path} is no report: its JSON has other keys", advice=advice)
    if not report["entries"]:
        raise OptionError(f"{path} is the report of a program that was not compiled", advice=advice)
    return report


def _of_reports(first: dict[str, Any], second: dict[str, Any]) -> Iterator[Change]:
    a, b = first["entries"][-1], second["entries"][-1]
    yield from _changed("options", _texts(first["options"]), _texts(second["options"]))
    yield from _changed("programs", {"number": str(len(first["entries"]))}, {"number": str(len(second["entries"]))})
    yield from _changed("programs", {"latest, because": a["reason"]}, {"latest, because": b["reason"]})
    yield from _counted("decisions", _decisions(a["decisions"]), _decisions(b["decisions"]))
    yield from _changed("operations", _operations(a["stages"]), _operations(b["stages"]))
    yield from _counted("kernels", _regions(a), _regions(b))
    yield from _changed("memory", _memory(a), _memory(b))
    yield from _times(a, b, first["measured"], second["measured"])
    yield from _counted("guards", Counter(a["guards"]), Counter(b["guards"]))


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: json.dumps(value) for name, value in options.items()}


def _decisions(decisions: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """The number of ops by phase, name, executor and declines."""
    found: Counter[str] = Counter()
    for op in decisions:
        runs = f"{op['executor']}.{op['variant']}" if op["variant"] else op["executor"]
        declined = "".join([f"; not {name}: {reason}" for name, reason in op["declined"]])
        found[f"{op['phase']}: {op['symbol']} by {'its parts' if op['parts'] else runs}{declined}"] += 1
        found += _decisions(op["parts"])
    return found


def _operations(stages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The number of ops after each pass; a pass that runs more than once is numbered."""
    runs: Counter[str] = Counter()
    found: dict[str, str] = {}
    for stage in stages:
        runs[stage["name"]] += 1
        number = runs[stage["name"]]
        if stage["lines"] is not None:
            found[f"after {stage['name']}{f' ({number})' if number > 1 else ''}"] = str(stage["lines"])
    return found


def _regions(entry: Mapping[str, Any]) -> Counter[str]:
    return Counter(entry["regions"]["contents"] if entry["regions"] else ())


def _memory(entry: Mapping[str, Any]) -> dict[str, str]:
    training = entry["training"]
    moved = sum(op["bytes"] or 0 for op in _leaves(entry["decisions"]))
    found = {"arguments and results of operations": bytes_text(moved)}
    if training:
        found["saved for backward"] = bytes_text(training["saved_bytes"])
        found["values saved for backward"] = str(training["saved_values"])
        found["values recomputed in backward"] = str(training["recomputed"])
    return found


def _leaves(decisions: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for op in decisions:
        if op["phase"] not in ("joint", "pattern"):
            yield from _leaves(op["parts"]) if op["parts"] else [op]


def _times(a: Mapping[str, Any], b: Mapping[str, Any], one: Mapping[str, float], other: Mapping[str, float]) -> Any:
    """Stages of the compilation and measured times that differ by a tenth and more, and by a millisecond."""
    before, after = ({f"measured, {name}": seconds for name, seconds in each.items()} for each in (one, other))
    for entry, seconds in ((a, before), (b, after)):
        for stage in entry["stages"]:
            name = f"compilation, {stage['name']}"
            seconds[name] = seconds.get(name, 0.0) + stage["seconds"]
    for name in dict.fromkeys([*before, *after]):
        x, y = before.get(name, 0.0), after.get(name, 0.0)
        if abs(x - y) >= max(1e-3, 0.1 * max(x, y)):
            yield Change("time", name, duration(x), duration(y))


def _of_archives(first: Path, second: Path) -> Iterator[Change]:
    contents = library("saving", "archive", "diff of saved programs and thunder show")
    a, b = contents.read_archive(first), contents.read_archive(second)
    for key in ("environment", "options"):
        yield from _changed("options", _texts(a.manifest.get(key) or {}), _texts(b.manifest.get(key) or {}))
    programs = [{"number": str(len(each.manifest["programs"]))} for each in (a, b)]
    yield from _changed("programs", *programs)
    for key in ("guards", "inputs", "results", "assumptions"):
        rows = [
            {f"program {n}, {key}": json.dumps(p.get(key)) for n, p in enumerate(x.manifest["programs"])}
            for x in (a, b)
        ]
        yield from _changed("guards", *rows)
    yield from _changed("state", _state(a.manifest["state"]), _state(b.manifest["state"]))
    for name in sorted({*a.texts, *b.texts}):
        lines = difflib.ndiff(a.texts.get(name, "").splitlines(), b.texts.get(name, "").splitlines())
        for line in lines:
            text = line[2:].strip()
            if line.startswith("- "):
                yield Change("source", name, text, "")
            elif line.startswith("+ "):
                yield Change("source", name, "", text)


def _state(state: Any) -> dict[str, str]:
    rows = state.items() if isinstance(state, dict) else enumerate(state)
    return {f"state {name}": json.dumps(value) for name, value in rows}


def _changed(subject: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Change(subject, name, before.get(name, ""), after.get(name, ""))


def _counted(subject: str, before: Counter[str], after: Counter[str]) -> Iterator[Change]:
    for name in dict.fromkeys([*before, *after]):
        if before[name] != after[name]:
            yield Change(subject, name, f"{before[name]} x", f"{after[name]} x")

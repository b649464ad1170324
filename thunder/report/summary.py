"""The summary of a report: what a program runs on and what it cost, in at most 20 lines of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from thunder.report.amounts import bytes_text, counted, duration, percent
from thunder.report.decisions import Share, shares
from thunder.report.next_step import next_step

if TYPE_CHECKING:
    from thunder.report.compile_report import CompileReport, EntryReport
    from thunder.report.training_report import TrainingReport

_WIDTH: Final = 80
_HEIGHT: Final = 20
_MOST_EXECUTORS: Final = 3
_FEWEST_PROGRAMS: Final = 2
_MOST_PROGRAMS: Final = 6
SECTIONS: Final = ("programs", "stages", "decisions", "regions", "training", "sizes", "collectives", "notes", "guards")
"""The sections of a report, which are its attributes and the options of ``thunder explain``."""


def summary(report: CompileReport) -> list[str]:
    """The lines of the summary. A line that is cut ends with ``...``; the section that it is of has all of it."""
    eager = sum(report.fallbacks.values())
    calls = f"{counted(report.cache_hits, 'call')} from the cache, {report.cache_misses} compiled"
    calls += f", {eager} by eager PyTorch" if eager else ""
    lines = [f"{report.name}: {counted(len(report.entries), 'program')}; {calls}"]
    lines.append("options: " + (", ".join(f"{name}={report.options[name]!r}" for name in report.changed) or "defaults"))
    lines += _one_of(report.left_out_lines(), "left_out")
    lines += _one_of(list(report.module_notes), "module_notes")
    runs = [f"run by eager PyTorch {counted(count, 'time')}: {reason}" for reason, count in report.fallbacks.items()]
    lines += _one_of(runs, "fallbacks")
    lines = [_cut(line) for line in lines]
    end = _next_step_lines(report)
    if report.entries:
        lines += [_cut(line) for line in _latest(report, report.entries[-1])]
        end.insert(0, _sections(report))
        most = min(_MOST_PROGRAMS, max(_HEIGHT - len(lines) - len(end), _FEWEST_PROGRAMS))
        lines += [_cut(line) for line in _programs(report.entries, most)]
    return lines + end


def _programs(entries: Sequence[EntryReport], most: int) -> list[str]:
    """Why the latest programs were compiled."""
    lines = [f"program {n}: {duration(entry.seconds)}, because {entry.reason}" for n, entry in enumerate(entries)]
    hidden = len(lines) - most
    return lines if hidden <= 0 else [f"programs 0 to {hidden}: .programs", *lines[hidden + 1 :]]


def _next_step_lines(report: CompileReport) -> list[str]:
    found = next_step(report)
    if found is None:
        return []
    why, code = found
    most = 1 if code else 2
    text = textwrap.wrap(f"suggestion: {why}", _WIDTH, subsequent_indent="  ", max_lines=most, placeholder=" ...")
    return [*text, *([f"  {code}"] if code else [])]


def _sections(report: CompileReport) -> str:
    names = [name for name in SECTIONS if getattr(report, name)]
    dotted = f"more: .{' .'.join(names)}"
    return dotted if len(dotted) <= _WIDTH else f"more: {' '.join(names)}"


def _latest(report: CompileReport, entry: EntryReport) -> list[str]:
    """The numbers of the latest program."""
    lines = [] if entry.preset is None else entry.preset.lines()[:1]
    if entry.as_recorded is not None:
        lines.append(f"runs operation by operation under PyTorch's autograd: {entry.as_recorded}")
    lines += _table(shares(entry.decisions), report.measured)
    lines.append(_compile_time(entry))
    if entry.training is not None:
        lines.append(_saved(entry.training))
        if entry.training.memory is not None:
            lines.append(entry.training.memory.summary())
    if entry.regions is not None:
        lines.append(entry.regions.lines()[0])
    if entry.collectives:
        sent = sum(each.bytes for each in entry.collectives)
        lines.append(f"collectives: {len(entry.collectives)}, each rank sends {bytes_text(sent)}")
    return lines


def _table(rows: Sequence[Share], seconds: dict[str, float]) -> list[str]:
    shown = [*rows[:_MOST_EXECUTORS], *_rest(rows[_MOST_EXECUTORS:])]
    if not shown:
        return ["no operations"]
    total, time = sum(row.lines for row in rows), sum(seconds.values())
    known_flops = any(row.flops for row in rows)
    cells = [["executor", "operations", "share", "bytes"]]
    cells[0] += [title for title, known in (("FLOPs", known_flops), ("time", time)) if known]
    for row in shown:
        line = [row.executor, str(row.lines), percent(row.lines / total), percent(row.bytes)]
        line += [percent(row.flops)] if known_flops else []
        cells.append([*line, *([percent(seconds.get(row.executor, 0.0) / time)] if time else [])])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
    return [f"  {text}" for text in texts]


def _rest(rows: Sequence[Share]) -> list[Share]:
    if not rows:
        return []
    lines, data, flops = sum(r.lines for r in rows), sum(r.bytes for r in rows), sum(r.flops for r in rows)
    return [Share(f"{len(rows)} others", lines, data, flops)]


def _compile_time(entry: EntryReport) -> str:
    """The time of the compilation, and of its longest stages."""
    seconds: dict[str, float] = {}
    for stage in entry.stages:
        seconds[stage.name] = seconds.get(stage.name, 0.0) + stage.seconds
    longest = sorted(seconds.items(), key=lambda item: -item[1])[:3]
    return f"compiled in {duration(entry.seconds)}: " + ", ".join(f"{name} {duration(time)}" for name, time in longest)


def _saved(training: TrainingReport) -> str:
    saved = f"{counted(training.saved_values, 'value')} ({bytes_text(training.saved_bytes)})"
    again = f"; {training.recomputed} recomputed" if training.recomputed else ""
    return f"saved for backward: {saved}, {counted(training.saved_inputs, 'input')}{again}"


def _one_of(lines: list[str], attribute: str) -> list[str]:
    """The first of the lines, with the number of the others."""
    more = f" ({len(lines) - 1} more: .{attribute})"
    return lines if len(lines) < 2 else [_cut(lines[0], _WIDTH - len(more)) + more]


def _cut(line: str, width: int = _WIDTH) -> str:
    line = " ".join(line.splitlines()) if "\n" in line else line
    return line if len(line) <= width else f"{line[: width - 3].rstrip()}..."

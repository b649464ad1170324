"""A trace for Perfetto (https://ui.perfetto.dev): the ops of each program in order, memory and collectives.

The format is that of trace events: JSON with a list of events, whose times are microseconds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from thunder.report.compile_report import CompileReport
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import WAITS
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.base import Phase
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_plugin_explorer.memory import memory_timeline

UNMEASURED: Final = 1.0
"""The microseconds of an op that was not measured."""
_OPS, _COLLECTIVES, _PASSES = 1, 2, 3


def write_perfetto(report: CompileReport, entries: Sequence[CacheEntry], path: str | os.PathLike[str]) -> None:
    """Write the trace of a report to a file, which is replaced if it exists.

    Args:
        entries: the compiled programs, in the order of ``report.entries``. Each is a process of the trace.

    Raises:
        OSError: the file cannot be written.
    """
    events = [event for number, entry in enumerate(entries) for event in _events(number, entry, report)]
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, default=str), encoding="utf-8")


def _events(number: int, entry: CacheEntry, report: CompileReport) -> Iterator[dict[str, Any]]:
    collectives = report.entries[number].collectives
    times = _mean_times(entry)
    timed = "measured" if times else f"not measured, {UNMEASURED:g} us for each op"
    yield _named("process_name", number, 0, f"{report.name}, program {number} ({timed})")
    for thread, name in ((_OPS, "ops"), (_COLLECTIVES, "collectives"), (_PASSES, "passes of the compilation")):
        yield _named("thread_name", number, thread, name)
    executed = entry.program.executed
    memory = memory_timeline(executed)
    now = 0.0
    for phase, trace in executed.items():
        edges = [now]
        for index, op in enumerate(trace.symbols):
            duration = times.get((phase.value, op.symbol.executor or "reference", _place(op)), UNMEASURED)
            yield _span(op.symbol.name, number, _OPS, now, duration, _arguments(phase, index, op))
            yield {
                "name": "bytes",
                "ph": "C",
                "pid": number,
                "ts": now,
                "args": {"alive, without inputs": memory.bytes[phase.value][index]},
            }
            now += duration
            edges.append(now)
        pairs = list(_collectives(trace))
        rows = [row for row in collectives if row.phase == phase.value]
        for position, (issue, wait) in enumerate(pairs):
            row = rows[position] if len(rows) == len(pairs) else None
            name = trace.symbols[issue].symbol.name if row is None else row.kind
            duration = edges[wait + 1] - edges[issue]
            about = {"op": issue, "wait": wait} | ({} if row is None else asdict(row))
            yield _span(name, number, _COLLECTIVES, edges[issue], duration, about)
    begin = 0.0
    for stage in entry.stages:
        yield _span(stage.name, number, _PASSES, begin, stage.seconds * 1e6, {"ops": stage.lines})
        begin += stage.seconds * 1e6


def _collectives(trace: Trace) -> Iterator[tuple[int, int]]:
    """The positions of each collective and of the op that waits for it; its own if none waits."""
    positions = {id(op): index for index, op in enumerate(trace.symbols)}
    for index, op in enumerate(trace.symbols):
        if not set(op.effects.channels) - {WAITS} and Tag.COLLECTIVE not in op.symbol.tags:
            continue
        users = [user for proxy in op.outputs() for user in trace.users(proxy.name)]
        waits = [user for user in users if WAITS in user.effects.channels or Tag.WAIT in user.symbol.tags]
        yield index, min([positions[id(user)] for user in waits], default=index)


def _mean_times(entry: CacheEntry) -> dict[tuple[str, str, str], float]:
    """The mean microseconds of a call of an op, by phase, executor and place. Ops of one line have the same mean."""
    sums: dict[tuple[str, str, str], tuple[float, int]] = {}
    for record in (record for transform in entry.transforms for record in transform.measured_ops()):
        key = (record.phase, record.executor, record.place)
        total, calls = sums.get(key, (0.0, 0))
        sums[key] = (total + record.total, calls + record.calls)
    return {key: total / calls * 1e6 for key, (total, calls) in sums.items() if calls}


def _place(op: BoundSymbol) -> str:
    return "" if op.location is None else op.location.place()


def _arguments(phase: Phase, index: int, op: BoundSymbol) -> dict[str, Any]:
    return {
        "program": phase.value,
        "index": index,
        "executor": op.symbol.executor or "reference",
        "line": _place(op),
        "results": ", ".join([proxy.name for proxy in op.outputs()]),
        "parts": ", ".join([part.symbol.name for part in op.parts]),
    }


def _span(name: str, process: int, thread: int, start: float, duration: float, arguments: dict[str, Any]) -> Any:
    place = {"pid": process, "tid": thread, "ts": start, "dur": duration}
    return {"name": name, "ph": "X", **place, "args": arguments}


def _named(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}

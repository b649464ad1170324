"""The report of a program as data for the page."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from thunder.report.compile_report import CompileReport, EntryReport
from thunder.report.decisions import OpDecisions
from thunder_core._version import __version__
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.storage_sizes import extent_bytes
from thunder_core.ir.trace import Trace
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_plugin_explorer.memory import memory_timeline
from thunder_plugin_explorer.program_data import Tables

FORMAT = 1


def report_data(report: CompileReport, entries: Sequence[CacheEntry], complete: int) -> dict[str, Any]:
    """What the page shows, as JSON.

    Args:
        entries: the compiled programs, in the order of ``report.entries``.
        complete: how many of the latest programs have all stages; of the others only the executed traces are included.
    """
    tables = Tables()
    rest = len(entries) - complete
    programs = [
        _program(tables, *pair, position >= rest)
        for position, pair in enumerate(zip(report.entries, entries, strict=True))
    ]
    return {
        "format": FORMAT,
        "name": report.name,
        "versions": f"Thunder {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}",
        "summary": str(report).splitlines(),
        "options": [[name, repr(value), name in report.changed] for name, value in report.options.items()],
        "notes": [*report.left_out_lines(), *report.module_notes],
        "fallbacks": list(report.fallbacks.items()),
        "calls": [report.cache_hits, report.cache_misses],
        "programs": programs,
        "ops": tables.ops,
        "locations": tables.locations,
        "codes": tables.codes,
    }


def _program(tables: Tables, report: EntryReport, entry: CacheEntry, complete: bool) -> dict[str, Any]:
    program = entry.program
    executed = program.executed
    every = [*program.traces, *program.backward_traces]
    tables.add_codes(every)
    traces = _stages(tables, program.traces, program.backward_traces) if complete else []
    final = {phase.value: tables.add_trace(trace, "executed", phase.value) for phase, trace in executed.items()}
    return {
        "reason": report.reason,
        "seconds": report.seconds,
        "cached": report.cached,
        "head": report.head(),
        "stages": [[stage.name, stage.seconds, stage.lines] for stage in report.stages],
        "traces": traces,
        "final": final,
        "decisions": _decisions(report.decisions),
        "guards": list(report.guards),
        "prologue": str(entry.prologue),
        "saved": _saved(entry),
        "training": report.lines("training"),
        "memory": asdict(memory_timeline(executed)),
        "regions": report.lines("regions"),
        "notes": list(report.notes),
        "collectives": [asdict(each) for each in report.collectives],
        "measured": _measured(entry),
    }


def _stages(tables: Tables, forward: Sequence[Trace], backward: Sequence[Trace]) -> list[dict[str, Any]]:
    """The traces that differ from the ones before them: those of forward, then the joint trace and backward."""
    phase = "forward" if backward else "inference"
    stages = [tables.add_trace(trace, trace.provenance, phase) for trace in forward]
    joint = [tables.add_trace(trace, trace.provenance, "joint") for trace in backward[:1]]
    late = [tables.add_trace(trace, trace.provenance, "backward") for trace in backward[1:]]
    return [*_changed(stages), *joint, *_changed(late)]


def _changed(stages: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    changed: list[dict[str, Any]] = []
    for stage in stages:
        if not changed or any(stage[key] != changed[-1][key] for key in ("ops", "output", "deleted", "inputs")):
            changed.append(stage)
    return changed


def _decisions(decisions: Iterable[OpDecisions]) -> list[list[Any]]:
    """Rows ``[phase, symbol, outputs, location, executor, variant, declined, parts, bytes, flops]``."""
    return [
        [
            op.phase,
            op.symbol,
            op.outputs,
            op.location,
            op.executor,
            op.variant,
            op.declined,
            _decisions(op.parts),
            op.bytes,
            op.flops,
        ]
        for op in decisions
    ]


def _saved(entry: CacheEntry) -> list[list[Any]]:
    """What forward saves for backward: rows of name, bytes and whether it is an input of the program."""
    differentiated = entry.program.differentiated
    if differentiated is None:
        return []
    inputs = {proxy.name for proxy in differentiated.joint.primals}
    return [
        [proxy.name, extent_bytes(proxy) if isinstance(proxy, TensorProxy) else 0, proxy.name in inputs]
        for proxy in differentiated.partitioned.saved
    ]


def _measured(entry: CacheEntry) -> list[list[Any]]:
    """Rows ``[phase, operation, executor, place, clock, calls, seconds]``, the longest first.

    Programs that are compiled with equal options share a transform, so records of lines of others are left out.
    """
    executed = entry.program.executed.items()
    own = {
        (phase.value, op.location.place() if op.location else "") for phase, trace in executed for op in trace.symbols
    }
    every = [record for transform in entry.transforms for record in transform.measured_ops()]
    records = [record for record in every if (record.phase, record.place) in own]
    rows = [[r.phase, r.operation, r.executor, r.place, r.clock, r.calls, r.total] for r in records]
    return sorted(rows, key=lambda row: -row[-1])

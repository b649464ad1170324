"""The one thing to do next that a report suggests.

A suggestion has a number only where it was measured: by `thunder tune`, or the time of operations by a transform.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thunder.report.amounts import bytes_text, counted, duration, percent
from thunder.report.decisions import executed, shares
from thunder.report.measured_gain import measured_gain
from thunder_core.executors.reference import REFERENCE

if TYPE_CHECKING:
    from thunder.report.compile_report import CompileReport, EntryReport

_MANY_PROGRAMS: Final = 4
_MUCH: Final = 2**30  # bytes saved for backward
_FEW: Final = 4  # ops that are not worth a fusion

NextStep = tuple[str, str]
"""A sentence, and Python or a command that does it; empty if there is none."""


def next_step(report: CompileReport) -> NextStep | None:
    """What to do next, by what costs most; None if nothing is known."""
    if not report.entries:
        return _without_programs(report)
    entry = report.entries[-1]
    for rule in _RULES:
        found = rule(report, entry)
        if found is not None:
            return found
    return None


def _without_programs(report: CompileReport) -> NextStep | None:
    if report.fallbacks:
        return "nothing is compiled; remove the reason above, or compile the part without it", ""
    return f"{report.name} has not been compiled yet: call it once", ""


def _eager_calls(report: CompileReport, entry: EntryReport) -> NextStep | None:
    eager = sum(report.fallbacks.values())
    if eager <= report.cache_hits + report.cache_misses - eager:
        return None
    return "eager PyTorch runs most calls; remove the reason above, or compile the part without it", ""


def _recompilations(report: CompileReport, entry: EntryReport) -> NextStep | None:
    if len(report.entries) < _MANY_PROGRAMS or report.cache_hits > len(report.entries):
        return None
    paths = Counter([each.reason.partition(":")[0] for each in report.entries[1:]])
    path, count = paths.most_common(1)[0]
    return f"{path} caused {count} of {len(report.entries)} compilations: docs/guards.md says how to avoid them", ""


def _autograd(report: CompileReport, entry: EntryReport) -> NextStep | None:
    if entry.as_recorded is None:
        return None
    return "move what autograd needs out of the program, so that executors run it and its backward", ""


def _eager_modules(report: CompileReport, entry: EntryReport) -> NextStep | None:
    calls = [op for op in executed(entry.decisions) if op.symbol.endswith(_EAGER)]
    if not calls:
        return None
    where = f", the first at {calls[0].location}" if calls[0].location else ""
    return f"{counted(len(calls), 'call')} of submodules run in eager PyTorch, since they need values{where}", ""


_EAGER: Final = "call_module"


def _tuned(report: CompileReport, entry: EntryReport) -> NextStep | None:
    gain = measured_gain(report._programs[-1]) if report._programs else None
    if gain is None or not Path(gain.config).is_file():
        return None
    times = f"{duration(gain.before)} to {duration(gain.after)} a call"
    return f"thunder tune measured {gain.before / gain.after:.2f} x the speed, {times}:", _with(gain.config)


def _with(config: str) -> str:
    """The call that uses a file; one in the current directory by its relative path."""
    relative = os.path.relpath(config)
    path = config if relative.startswith(os.pardir) else relative
    return f"thunder.jit(model, config={path!r})"


def _missing(report: CompileReport, entry: EntryReport) -> NextStep | None:
    if entry.preset is None or not entry.preset.left_out:
        return None
    name, reason = entry.preset.left_out[0]
    total = sum(report.measured.values())
    share = report.measured.get(REFERENCE.name, 0.0) / total if total else 0.0
    most = f"; PyTorch's functions take {percent(share)} of the time of operations" if share else ""
    return f"{name} is not used, because {reason}{most}", ""


def _unfused(report: CompileReport, entry: EntryReport) -> NextStep | None:
    rows = shares(entry.decisions)
    if entry.regions is not None or [row.executor for row in rows] != [REFERENCE.name] or rows[0].lines < _FEW:
        return None
    return "operations run as PyTorch functions; fusing them may be faster:", _FUSE


_FUSE: Final = 'thunder.jit(model, executors=["inductor"])'


def _declined(report: CompileReport, entry: EntryReport) -> NextStep | None:
    regions = () if entry.regions is None else entry.regions.contents
    fusing = {region.partition("_region_")[0] for region in regions}  # these leave matmuls and the like to libraries
    for ops in (executed(entry.decisions), entry.decisions):  # the latter with those before differentiation
        bytes_of: Counter[tuple[str, str, str]] = Counter()
        for op in ops:
            for executor, reason in [each for each in op.declined if each[0] not in fusing]:
                bytes_of[op.symbol, executor, reason] += op.bytes or 0
        if bytes_of:
            (symbol, executor, reason), _ = bytes_of.most_common(1)[0]
            return f"{executor} declined {symbol}: {reason}", ""
    return None


def _memory(report: CompileReport, entry: EntryReport) -> NextStep | None:
    training = entry.training
    if training is None or training.saved_bytes < _MUCH or training.recompute not in ("none", "cheap"):
        return None
    if training.memory is not None:
        return None
    saved = bytes_text(training.saved_bytes)
    return f"{saved} are saved for backward; to recompute more of it:", 'thunder.jit(model, recompute="aggressive")'


_RULES: Final[Sequence[Callable[[CompileReport, EntryReport], NextStep | None]]] = (
    _eager_calls,
    _recompilations,
    _eager_modules,
    _autograd,
    _tuned,
    _missing,
    _declined,
    _unfused,
    _memory,
)

"""The one thing to do next that a report suggests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from thunder.report.amounts import bytes_text, counted
from thunder.report.decisions import executed, shares
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


def _missing(report: CompileReport, entry: EntryReport) -> NextStep | None:
    if entry.preset is None or not entry.preset.left_out:
        return None
    name, reason = entry.preset.left_out[0]
    return f"{name} is not used, because {reason}", ""


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
    _missing,
    _declined,
    _unfused,
    _memory,
)

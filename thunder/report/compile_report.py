"""The report of the compilations of one program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from thunder.compiled.function import Compiled
from thunder.config import resolve_config
from thunder.config.settings import ConfiguredSettings
from thunder.report.collectives_report import CollectiveReport, collective_lines
from thunder.report.decisions import OpDecisions, count_executed, decision_table, decisions_of, share_lines
from thunder.report.regions_report import RegionReport
from thunder.report.training_report import TrainingReport
from thunder_core.contract import CONSTANT_SIZES, Retry
from thunder_core.passes.pass_manager import StageReport
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.sizes_report import SizesReport
from thunder_core.settings import PresetChoice


@dataclass(frozen=True)
class EntryReport:
    """One compilation.

    Attributes:
        reason: why the program was compiled: the guard that failed, or that it was the first call.
        cached: whether the entry is cached.
        stages: its stages, in order. Those after the code generation belong to programs that were compiled when a call
            first needed them: backwards for some cotangents or gradients, and second derivatives.
        guards: its guards, one line of text each.
        inputs: the number of inputs of the computation.
        executors: the number of executed ops by executor.
        writes: the number of writes to Python objects.
        training: the report of the differentiation; None without gradients.
        as_recorded: why PyTorch runs the ops as they were recorded, under its autograd; None if executors run them.
        regions: the fusion regions; None without any.
        preset: the preset of its executors, if the configuration names none.
        sizes: the sizes that vary between calls; None if none was to vary.
        values: the values of tensors that it was compiled with, and checks in each run.
        decisions: for each op its executor, and why others declined.
        notes: notes of transforms, and patterns of executors that match no operation of the program.
        collectives: its collectives, in order.
        retries: what was done in another way after errors, in order.
    """

    reason: str
    cached: bool
    stages: tuple[StageReport, ...]
    guards: tuple[str, ...]
    inputs: int
    executors: dict[str, int]
    writes: int
    training: TrainingReport | None
    as_recorded: str | None
    regions: RegionReport | None
    preset: PresetChoice | None
    sizes: SizesReport | None
    values: tuple[str, ...]
    decisions: tuple[OpDecisions, ...] = ()
    notes: tuple[str, ...] = ()
    collectives: tuple[CollectiveReport, ...] = ()
    retries: tuple[Retry, ...] = ()

    @property
    def seconds(self) -> float:
        """Total compile time."""
        return sum(stage.seconds for stage in self.stages)


@dataclass(frozen=True)
class CompileReport:
    """All compilations of one program so far. Prints as text; ``to_json`` for tools.

    Attributes:
        name: the program.
        options: how it is compiled: the complete configuration.
        changed: names of the options that differ from the default.
        cache_hits, cache_misses: counters of its calls.
        entries: its compilations, oldest first.
        fallbacks: calls run by eager PyTorch, with the reason and how often.
        left_out: optional executors and transforms of the configuration that could not be used, with the reason.
        module_notes: what transforms did to the module.
    """

    name: str
    options: dict[str, object]
    changed: tuple[str, ...]
    cache_hits: int
    cache_misses: int
    entries: tuple[EntryReport, ...]
    fallbacks: dict[str, int]
    left_out: tuple[tuple[str, str], ...]
    module_notes: tuple[str, ...] = ()

    @property
    def miss_reasons(self) -> tuple[str, ...]:
        """Why each compilation happened, oldest first."""
        return tuple(entry.reason for entry in self.entries)

    @property
    def decisions(self) -> tuple[OpDecisions, ...]:
        """For each op of the latest compilation its executor, and why others declined."""
        return self.entries[-1].decisions if self.entries else ()

    def left_out_lines(self) -> list[str]:
        """The parts that are left out as text, a line for each reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.left_out:
            names.setdefault(reason, []).append(name)
        return [f"left out: {', '.join(parts)}, because {reason}" for reason, parts in names.items()]

    def to_json(self) -> str:
        """The report as JSON text."""
        return json.dumps(asdict(self), indent=2, default=str)

    def __str__(self) -> str:
        lines = [
            f"{self.name}: {self.cache_hits} cache hits, {self.cache_misses} misses, {len(self.entries)} compilations",
            "options: " + (", ".join(f"{name}={self.options[name]!r}" for name in self.changed) or "defaults"),
        ]
        lines.extend(self.left_out_lines())
        lines.extend(self.module_notes)
        for reason, count in self.fallbacks.items():
            lines.append(f"run by eager PyTorch {count} times: {reason}")
        for number, entry in enumerate(self.entries):
            lines.append("")
            lines.extend(_entry_lines(number, entry))
        return "\n".join(lines)


def _entry_lines(number: int, entry: EntryReport) -> Sequence[str]:
    cached = "" if entry.cached else " (not cached)"
    lines = [f"compilation {number}{cached}: {entry.seconds * 1e3:.1f} ms, because {entry.reason}"]
    for stage in entry.stages:
        size = f"{stage.lines:6d} operations" if stage.lines is not None else ""
        lines.append(f"  {stage.name:<28}{stage.seconds * 1e3:9.2f} ms {size}")
    if entry.preset is not None:
        lines.extend(f"  {line}" for line in entry.preset.lines())
    if entry.sizes is not None:
        lines.extend(f"  {line}" for line in entry.sizes.lines())
    known = "" if entry.sizes is None else entry.sizes.reason
    lines.extend(
        f"  once more: {retry}" for retry in entry.retries if (retry.change, retry.reason) != (CONSTANT_SIZES, known)
    )
    lines.extend(f"  only where {text}" for text in entry.values)
    lines.extend(f"  {line}" for line in share_lines(entry.decisions))
    lines.extend(f"    {line}" for line in decision_table(entry.decisions))
    if entry.regions is not None:
        lines.extend(f"  {line}" for line in entry.regions.lines())
    if entry.training is not None:
        lines.extend(f"  {line}" for line in entry.training.lines())
    lines.extend(f"  {line}" for line in collective_lines(entry.collectives))
    lines.extend(f"  {note}" for note in entry.notes)
    if entry.as_recorded is not None:
        lines.append(f"  runs operation by operation under PyTorch's autograd: {entry.as_recorded}")
    lines.append(f"  {entry.inputs} inputs, {entry.writes} writes to Python objects, {len(entry.guards)} guards")
    lines.extend(f"    {guard}" for guard in entry.guards)
    return lines


def compile_report(compiled: Compiled) -> CompileReport:
    """The report of all compilations of a program."""
    programs = compiled.programs()
    own = compiled.entries or ([compiled.last] if compiled.last else [])
    entries = [*own, *[entry for program in programs[1:] for entry in program.entries]]
    fallbacks = sum([program.fallbacks for program in programs], Counter())
    assert isinstance(compiled.settings, ConfiguredSettings)
    options, default = compiled.settings.config.model_dump(), resolve_config({}).model_dump()
    return CompileReport(
        compiled.name,
        options,
        tuple([name for name, value in options.items() if value != default[name]]),
        sum(program.hits for program in programs),
        sum(program.misses for program in programs),
        tuple(map(entry_report, entries)),
        dict(fallbacks),
        compiled.settings.left_out,
        tuple(_module_notes(compiled)),
    )


def _module_notes(compiled: Compiled) -> list[str]:
    module = compiled.function
    if not isinstance(module, torch.nn.Module):
        return []
    return [line for transform in compiled.settings.transforms for line in transform.module_notes(module)]


def entry_report(entry: CacheEntry) -> EntryReport:
    """The report of one compilation."""
    program, stages = entry.program, (*entry.stages, *entry.program.later)
    if entry.checks.lines:
        stages += (StageReport("checks of results", entry.checks.seconds, entry.checks.lines),)
    return EntryReport(
        reason=entry.reason,
        cached=entry.cached,
        stages=stages,
        guards=tuple([guard.describe() for guard in entry.prologue.guards]),
        inputs=len(program.final.inputs),
        executors=count_executed(program.assignments),
        writes=entry.writes,
        training=TrainingReport.of(program),
        as_recorded=program.as_recorded,
        regions=RegionReport.of(program),
        preset=entry.preset,
        sizes=entry.size_report,
        values=tuple([guess.describe() for guess in entry.guesses]),
        decisions=decisions_of(program.assignments, program.unclaimed),
        notes=(*map(str, program.notes), *_unmatched_patterns(entry)),
        collectives=_collectives(entry),
        retries=entry.retries,
    )


def _collectives(entry: CacheEntry) -> tuple[CollectiveReport, ...]:
    if not entry.groups:
        return ()
    executed = entry.program.executed
    return tuple([row for transform in entry.transforms for row in transform.collectives(executed, entry.groups)])


def _unmatched_patterns(entry: CacheEntry) -> list[str]:
    ops = entry.program.all_ops()
    symbols = [op for trace in entry.program.executed.values() for op in trace.symbols]
    executed = [each for op in symbols for each in (op, *op.parts)]  # a transform may have made one op of all
    notes = [note for executor in entry.executors for note in executor.unmatched(ops)]
    return notes + [note for transform in entry.transforms for note in transform.unmatched(executed)]

"""The report of the compilations of one program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from thunder_core.passes.pass_manager import PassRecord
from thunder_core.report.collectives_report import CollectiveReport, collective_lines
from thunder_core.report.decisions import OpDecisions, decision_table, share_lines
from thunder_core.report.regions_report import RegionReport
from thunder_core.report.sizes_report import SizesReport
from thunder_core.report.training_report import TrainingReport


@dataclass(frozen=True)
class PresetChoice:
    """The executors of a program for which none were named.

    Attributes:
        preset: the name of the preset.
        device: the type of device that it was chosen for.
        executors: names of those of its executors that can be used here, in order.
        left_out: the others, with the reason.
    """

    preset: str
    device: str
    executors: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """The report as text."""
        names = ", ".join(self.executors) or "PyTorch alone"
        chosen = f"executors of the preset {self.preset!r}, chosen for the device {self.device}: {names}"
        return [chosen, *(f"  without {name}, because {reason}" for name, reason in self.left_out)]


@dataclass(frozen=True)
class StageReport:
    """One stage of a compilation: its name, its wall time in seconds, and the number of ops of its trace."""

    name: str
    seconds: float
    lines: int | None

    @staticmethod
    def of(record: PassRecord) -> StageReport:
        """The stage that one run of a pass was."""
        return StageReport(record.name, record.seconds, len(record.traces[0].symbols) if record.traces else None)


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
    """

    name: str
    options: dict[str, object]
    changed: tuple[str, ...]
    cache_hits: int
    cache_misses: int
    entries: tuple[EntryReport, ...]
    fallbacks: dict[str, int]
    left_out: tuple[tuple[str, str], ...]

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
        size = f"{stage.lines:6d} lines" if stage.lines is not None else ""
        lines.append(f"  {stage.name:<28}{stage.seconds * 1e3:9.2f} ms {size}")
    if entry.preset is not None:
        lines.extend(f"  {line}" for line in entry.preset.lines())
    if entry.sizes is not None:
        lines.extend(f"  {line}" for line in entry.sizes.lines())
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
        lines.append(f"  runs line by line under PyTorch's autograd: {entry.as_recorded}")
    lines.append(f"  {entry.inputs} inputs, {entry.writes} writes to Python objects, {len(entry.guards)} guards")
    lines.extend(f"    {guard}" for guard in entry.guards)
    return lines

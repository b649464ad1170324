"""The report of the compilations of one program."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from typing import ClassVar, Final

import torch

from thunder._libraries import library
from thunder.compiled.function import Compiled
from thunder.config import resolve_config
from thunder.config.settings import ConfiguredSettings
from thunder.report.amounts import duration
from thunder.report.collectives_report import CollectiveReport, collective_lines
from thunder.report.decisions import OpDecisions, count_executed, decision_table, decisions_of, share_lines
from thunder.report.regions_report import RegionReport
from thunder.report.section import Row, Section
from thunder.report.summary import summary
from thunder.report.training_report import DerivativeReport, TrainingReport
from thunder_core.contract import CONSTANT_SIZES, Retry
from thunder_core.errors import OptionError
from thunder_core.passes.pass_manager import StageReport
from thunder_core.runtime.cache_entry import CacheEntry
from thunder_core.runtime.sizes_report import SizesReport
from thunder_core.settings import PresetChoice


@dataclass(frozen=True, repr=False)
class EntryReport:
    """One compilation. Prints with all of its sections.

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

    def head(self, number: int | None = None) -> list[str]:
        """The time of the compilation, why it happened, and what the program is valid for."""
        title = "program" if number is None else f"program {number}"
        lines = [f"{title}: compiled in {duration(self.seconds)}, because {self.reason}"]
        lines += [] if self.cached else ["  not cached"]
        lines += [f"  {line}" for line in self.sizes.lines()] if self.sizes is not None else []
        known = "" if self.sizes is None else self.sizes.reason
        retries = [retry for retry in self.retries if (retry.change, retry.reason) != (CONSTANT_SIZES, known)]
        lines += [f"  once more: {retry}" for retry in retries]
        return [*lines, *[f"  only where {text}" for text in self.values]]

    def lines(self, section: str) -> list[str]:
        """The text of a section; empty if the program has none.

        Args:
            section: "stages", "decisions", "regions", "training", "sizes", "collectives", "notes" or "guards".
        """
        return _LINES[section](self)

    def __str__(self) -> str:
        sections = [name for name in _LINES if name != "sizes"]  # they are in the head
        return "\n".join([*self.head(), *[f"  {line}" for name in sections for line in self.lines(name)]])


@dataclass(frozen=True, repr=False)
class CompileReport:
    """All compilations of one program so far. Prints as a summary of at most 20 lines; ``to_json`` for tools.

    The properties are its sections: data that print as text. Those except `programs` are of the latest compilation; the
    same text of any other is in ``str(report.programs[0])``.

    Attributes:
        name: the program.
        options: how it is compiled: the complete configuration.
        changed: names of the options that differ from the default.
        cache_hits, cache_misses: counters of its calls.
        entries: its compilations, oldest first.
        fallbacks: calls run by eager PyTorch, with the reason and how often.
        left_out: optional executors and transforms of the configuration that could not be used, with the reason.
        measured: the seconds that ops have taken so far, by executor; empty if no transform measures them.
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
    measured: dict[str, float]
    module_notes: tuple[str, ...] = ()

    _programs: ClassVar[tuple[CacheEntry, ...]] = ()
    """The compiled programs, for `to_html` and measured gains; no part of the data, and not pickled."""

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_programs"}

    @property
    def miss_reasons(self) -> tuple[str, ...]:
        """Why each compilation happened, oldest first."""
        return tuple(entry.reason for entry in self.entries)

    @property
    def programs(self) -> Section[EntryReport]:
        """The compilations, oldest first: the time of each, why it happened, and what it is valid for."""
        return Section(self.entries, [line for number, each in enumerate(self.entries) for line in each.head(number)])

    @property
    def stages(self) -> Section[StageReport]:
        """The stages of the compilation with their times."""
        return self._section("stages", lambda entry: entry.stages)

    @property
    def decisions(self) -> Section[OpDecisions]:
        """For each op its executor, and why others declined."""
        return self._section("decisions", lambda entry: entry.decisions)

    @property
    def regions(self) -> Section[str]:
        """The fused regions, a sentence for each different one."""
        return self._section("regions", lambda entry: entry.regions.contents if entry.regions else ())

    @property
    def training(self) -> Section[DerivativeReport]:
        """The derivatives of the ops, and what forward saves for backward."""
        return self._section("training", lambda entry: entry.training.derivatives if entry.training else ())

    @property
    def sizes(self) -> Section[SizesReport]:
        """The sizes and numbers that vary between the calls of the program; empty if none was to vary."""
        return self._section("sizes", lambda entry: () if entry.sizes is None else (entry.sizes,))

    @property
    def collectives(self) -> Section[CollectiveReport]:
        """The collectives, in order."""
        return self._section("collectives", lambda entry: entry.collectives)

    @property
    def notes(self) -> Section[str]:
        """Notes of transforms and executors."""
        return self._section("notes", lambda entry: entry.notes)

    @property
    def guards(self) -> Section[str]:
        """The guards, a line of text each."""
        return self._section("guards", lambda entry: entry.guards)

    def _section(self, name: str, rows: Callable[[EntryReport], Iterable[Row]]) -> Section[Row]:
        if not self.entries:
            return Section((), ["nothing is compiled"])
        return Section(rows(self.entries[-1]), self.entries[-1].lines(name) or [f"{name}: none"])

    def left_out_lines(self) -> list[str]:
        """The parts that are left out as text, a line for each reason."""
        names: dict[str, list[str]] = {}
        for name, reason in self.left_out:
            names.setdefault(reason, []).append(name)
        return [f"left out: {', '.join(parts)}, because {reason}" for reason, parts in names.items()]

    def details(self) -> str:
        """The summary, and everything about all programs, as text."""
        options = [f"{name}={self.options[name]!r}" for name in self.changed]
        reasons = [f"run by eager PyTorch {count} times: {reason}" for reason, count in self.fallbacks.items()]
        lines = [*options, *self.left_out_lines(), *self.module_notes, *reasons]
        return "\n".join([*summary(self), "", *lines, *map(str, self.entries)])

    def to_json(self) -> str:
        """The report as JSON text: the attributes of the classes of `thunder.report`, with the same names."""
        return json.dumps(asdict(self), indent=2, default=str)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the explorer: one HTML file that shows the programs, and that reads nothing from the network.

        Args:
            path: the file; one that exists is replaced.

        Raises:
            PluginError: the package ``thunder-plugin-explorer`` is not installed.
            OptionError: nothing is compiled, or the report is a copy (pickled, or by `copy.deepcopy`).
            OSError: the file cannot be written.
        """
        page = library("explorer", "page", "to_html and --html", prefix="thunder_plugin_")
        page.write_page(self, self._traced(), path)

    def renamed(self, name: str) -> CompileReport:
        """The report under another name of the program."""
        report = replace(self, name=name)
        object.__setattr__(report, "_programs", self._programs)
        return report

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Write a trace for Perfetto (https://ui.perfetto.dev): ops with their times, memory, collectives, and passes.

        Ops have the mean times that a transform measures for their line and executor, and a microsecond without.

        Args:
            path: the file, JSON; one that exists is replaced.

        Raises:
            PluginError: the package ``thunder-plugin-explorer`` is not installed.
            OptionError: nothing is compiled, or the report is a copy.
            OSError: the file cannot be written.
        """
        perfetto = library("explorer", "perfetto", "to_perfetto and --perfetto", prefix="thunder_plugin_")
        perfetto.write_perfetto(self, self._traced(), path)

    def to_svg(self, path: str | os.PathLike[str]) -> None:
        """Write a picture of the latest program, of at most 200 ops, as SVG.

        Args:
            path: the file; one that exists is replaced.

        Raises:
            OptionError: it has more ops, nothing is compiled, or the report is a copy.
            PluginError: the package ``thunder-plugin-explorer`` is not installed.
            OSError: the file cannot be written.
        """
        picture = library("explorer", "picture", "to_svg and --svg", prefix="thunder_plugin_")
        picture.write_picture(self, self._traced()[-1], path)

    def _traced(self) -> tuple[CacheEntry, ...]:
        if not self.entries:
            why = f", since eager PyTorch ran it: {'; '.join(self.fallbacks)}" if self.fallbacks else ""
            raise OptionError(f"{self.name} has no compiled program{why}", advice=("call it once first",))
        if not self._programs:
            raise OptionError(
                "a copy of a report has no traces", advice=("call this method of the result of thunder.explain",)
            )
        return self._programs

    def __str__(self) -> str:
        return "\n".join(summary(self))

    __repr__ = __str__


def _stage_lines(entry: EntryReport) -> list[str]:
    lines = [f"compiled in {duration(entry.seconds)}"]
    for stage in entry.stages:
        size = f"{stage.lines:6d} operations" if stage.lines is not None else ""
        lines.append(f"  {stage.name:<28}{stage.seconds * 1e3:9.2f} ms {size}".rstrip())
    return lines


def _decision_lines(entry: EntryReport) -> list[str]:
    lines = [] if entry.preset is None else entry.preset.lines()
    lines += [*share_lines(entry.decisions), *[f"  {line}" for line in decision_table(entry.decisions)]]
    if entry.as_recorded is not None:
        lines.append(f"runs operation by operation under PyTorch's autograd: {entry.as_recorded}")
    return lines


def _guard_lines(entry: EntryReport) -> list[str]:
    title = f"{entry.inputs} inputs, {entry.writes} writes to Python objects, {len(entry.guards)} guards"
    return [title, *[f"  {guard}" for guard in entry.guards]]


_LINES: Final[dict[str, Callable[[EntryReport], list[str]]]] = {
    "stages": _stage_lines,
    "decisions": _decision_lines,
    "regions": lambda entry: [] if entry.regions is None else entry.regions.lines(),
    "training": lambda entry: [] if entry.training is None else list(entry.training.lines()),
    "sizes": lambda entry: [] if entry.sizes is None else entry.sizes.lines(),
    "collectives": lambda entry: collective_lines(entry.collectives),
    "notes": lambda entry: list(entry.notes),
    "guards": _guard_lines,
}


def compile_report(compiled: Compiled) -> CompileReport:
    """The report of all compilations of a program."""
    programs = compiled.programs()
    own = compiled.entries or ([compiled.last] if compiled.last else [])
    entries = [*own, *[entry for program in programs[1:] for entry in program.entries]]
    fallbacks = sum([program.fallbacks for program in programs], Counter())
    assert isinstance(compiled.settings, ConfiguredSettings)
    options, default = compiled.settings.config.model_dump(), resolve_config({}).model_dump()
    report = CompileReport(
        compiled.name,
        options,
        tuple([name for name, value in options.items() if value != default[name]]),
        sum(program.hits for program in programs),
        sum(program.misses for program in programs),
        tuple(map(entry_report, entries)),
        dict(fallbacks),
        compiled.settings.left_out,
        _measured(entries[-1]) if entries else {},
        tuple(_module_notes(compiled)),
    )
    object.__setattr__(report, "_programs", tuple(entries))
    return report


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


def _measured(entry: CacheEntry) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for transform in entry.transforms:
        for executor, time in transform.measured().items():
            seconds[executor] = seconds.get(executor, 0.0) + time
    return seconds


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

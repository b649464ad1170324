"""How long each line takes."""

from __future__ import annotations

import atexit
import sys
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_plugin_debug.debug_transform import DebugTransform
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, MakeCall
from thunder_plugin_debug.options import LineTimingOptions
from thunder_plugin_debug.stopwatch import Tally, timed_call
from thunder_plugin_debug.timing_record import TimingRecord, format_table


@dataclass(frozen=True, eq=False)
class LineTiming(DebugTransform):
    """Measures each line: on the CPU from before its call to after it, on a CUDA device by events, without waiting.

    Attributes:
        report: "exit" writes the table to the standard error when Python exits.
        rows: how many records that table shows.
    """

    name: ClassVar[str] = "line_timing"

    report: Literal["exit", "none"] = "none"
    rows: int = 30

    def __post_init__(self) -> None:
        self.check_choice("report", ("exit", "none"))
        if self.report == "exit":
            atexit.register(self._write_table)

    @cached_property
    def _tallies(self) -> list[Tally]:
        return []

    def calls(self, trace: Trace) -> MakeCall:
        """Each line with a stopwatch."""

        def make(line: Line, bound: BoundSymbol) -> LineCall:
            made = timed_call(line, bound.symbol.target, _device(bound))
            self._tallies.append(made.tally)
            return made

        return make

    @property
    def records(self) -> tuple[TimingRecord, ...]:
        """What took how long so far, the longest total first. Waits for the device."""
        found: dict[tuple[str, str, str, str, str], tuple[int, float]] = {}
        for tally in tuple(self._tallies):
            line = tally.line
            key = (line.phase, line.operation, line.executor, line.place, tally.clock)
            (calls, seconds), (before, sum_before) = tally.read(), found.get(key, (0, 0.0))
            found[key] = (before + calls, sum_before + seconds)
        total = sum(seconds for _, seconds in found.values()) or 1.0
        records = [
            TimingRecord(*key, calls, seconds, seconds / total) for key, (calls, seconds) in found.items() if calls
        ]
        return tuple(sorted(records, key=lambda record: -record.total))

    def table(self, rows: int | None = None) -> str:
        """The records as text: all, or the first ``rows``."""
        return format_table(self.records, rows)

    def reset(self) -> None:
        """Forget what was measured so far, as after a few calls to warm up. Waits for the device."""
        for tally in tuple(self._tallies):
            tally.reset()

    def _write_table(self) -> None:
        records = self.records
        if records:
            sys.stderr.write(f"time of lines, by thunder_plugin_debug:\n{format_table(records, self.rows)}\n")


def _device(bound: BoundSymbol) -> torch.device | None:
    """Where the line works: the device that is not the CPU, if one of its tensors is there."""
    devices = [proxy.device for proxy in (*bound.outputs(), *bound.inputs()) if isinstance(proxy, TensorProxy)]
    return next((device for device in devices if device.type != "cpu"), devices[0] if devices else None)


def from_options(options: LineTimingOptions) -> LineTiming:
    """The transform that a configuration asks for."""
    return LineTiming(options.include, options.exclude, options.report, options.rows)

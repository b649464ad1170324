"""The time of each operation."""

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
    """Measures each operation: on the CPU the call, on a CUDA device with events, without synchronization.

    Attributes:
        report: "exit" writes the table to the standard error when Python exits.
        rows: number of records in that table.
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
        """Measure each operation."""

        def make(line: Line, bound: BoundSymbol) -> LineCall:
            timed = timed_call(line, bound.symbol.target, _device(bound))
            self._tallies.append(timed.tally)
            return timed

        return make

    @property
    def records(self) -> tuple[TimingRecord, ...]:
        """The measurements so far, the largest total first. Synchronizes with the device."""
        totals: dict[tuple[str, str, str, str, str], tuple[int, float]] = {}
        for tally in tuple(self._tallies):
            line = tally.line
            key = (line.phase, line.operation, line.executor, line.place, tally.clock)
            (calls, seconds), (before, sum_before) = tally.read(), totals.get(key, (0, 0.0))
            totals[key] = (before + calls, sum_before + seconds)
        total = sum(seconds for _, seconds in totals.values()) or 1.0
        records = [
            TimingRecord(*key, calls, seconds, seconds / total) for key, (calls, seconds) in totals.items() if calls
        ]
        return tuple(sorted(records, key=lambda record: -record.total))

    def measured(self) -> dict[str, float]:
        """The seconds of the measured operations, by executor."""
        seconds: dict[str, float] = {}
        for record in self.records:
            seconds[record.executor] = seconds.get(record.executor, 0.0) + record.total
        return seconds

    def measured_ops(self) -> tuple[TimingRecord, ...]:
        """`records`, for reports."""
        return self.records

    def table(self, rows: int | None = None) -> str:
        """The records as text: all, or the first ``rows``."""
        return format_table(self.records, rows)

    def reset(self) -> None:
        """Discard the measurements so far, for example after warm-up. Synchronizes with the device."""
        for tally in tuple(self._tallies):
            tally.reset()

    def _write_table(self) -> None:
        records = self.records
        if records:
            sys.stderr.write(f"time of operations, by thunder_plugin_debug:\n{format_table(records, self.rows)}\n")


def _device(bound: BoundSymbol) -> torch.device | None:
    """The device of the operation: that of a tensor that is not on the CPU, if any."""
    devices = [proxy.device for proxy in (*bound.outputs(), *bound.inputs()) if isinstance(proxy, TensorProxy)]
    return next((device for device in devices if device.type != "cpu"), devices[0] if devices else None)


def from_options(options: LineTimingOptions) -> LineTiming:
    """The transform for the options of a configuration."""
    return LineTiming(options.include, options.exclude, options.report, options.rows)

"""Gains of other executors that were measured for a program, for the suggestions of its reports.

`thunder tune` stores them in the cache on disk, under what runs and the hardware.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Final

from thunder_core.executors.artifacts import hardware, software
from thunder_core.executors.disk_tables import DiskTable, disk_table, save_tables
from thunder_core.ir.printer import print_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.runtime.cache_entry import CacheEntry

_TITLE: Final = "measured gains 1"


@dataclass(frozen=True)
class MeasuredGain:
    """The time of a program with other executors.

    Attributes:
        before, after: seconds of a call with the executors that run now, and with the others.
        config: the path of the configuration with the others.
    """

    before: float
    after: float
    config: str


def program_text(entry: CacheEntry) -> str:
    """What a compiled program runs: its executable traces with regions and executors, without the user's lines."""
    traces = entry.program.executed.values()
    executors = [op.symbol.executor or "-" for trace in traces for op in trace.symbols]
    return "\n".join([*[print_trace(trace, lowered=True, comments=False) for trace in traces], " ".join(executors)])


def save_gain(entries: Iterable[CacheEntry], gain: MeasuredGain) -> list[str]:
    """Store the gain for these programs. Returns a sentence for each problem of the cache on disk."""
    table = _table()
    if table is None:
        return []
    for entry in entries:
        table.put(_key(entry), json.dumps(asdict(gain)).encode())
    return save_tables()


def measured_gain(entry: CacheEntry) -> MeasuredGain | None:
    """The gain that was measured for a program on this hardware; None if none was."""
    table = _table()
    data = None if table is None else table.get(_key(entry))
    if table is None or data is None:
        return None
    try:
        values = json.loads(data)
        return MeasuredGain(float(values["before"]), float(values["after"]), str(values["config"]))
    except (ValueError, TypeError, KeyError) as error:
        table.discard(_key(entry), f"{type(error).__name__}: {error}")
        return None


def _table() -> DiskTable | None:
    return disk_table(f"{_TITLE}\n{software()}")


def _key(entry: CacheEntry) -> str:
    tensors = [proxy for proxy in entry.program.final.inputs if isinstance(proxy, TensorProxy)]
    devices = sorted({str(proxy.device): proxy.device for proxy in tensors}.items())
    return "\n".join([program_text(entry), *[hardware(device) for _, device in devices]])

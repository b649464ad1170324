"""Descriptions of the regions of a compiled program, for its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace


def region_contents(traces: Iterable[Trace]) -> tuple[str, ...]:
    """A sentence for each different region of executable traces, in the order in which they run.

    A region is a line that an executor fused: its symbol has no importable name, and it has parts.
    """
    equal: dict[Any, list[tuple[str, BoundSymbol]]] = {}
    for trace in traces:
        for line in trace.symbols:
            if line.symbol.executor is not None and Tag.LOCAL in line.symbol.tags and line.parts:
                equal.setdefault(line.symbol.target, []).append((trace.name, line))
    return tuple([_content(lines) for lines in equal.values()])


def _content(lines: list[tuple[str, BoundSymbol]]) -> str:
    program, line = lines[0]
    times = f", {len(lines)} times" if len(lines) > 1 else ""
    inputs, outputs = len(list(line.inputs())), len(list(line.outputs()))
    operations = Counter([part.symbol.name.removeprefix("torch.ops.") for part in line.parts])
    names = ", ".join([f"{count} x {name}" if count > 1 else name for name, count in operations.items()])
    return f"{line.symbol.name} in {program}{times}: from {inputs} to {outputs} tensors by {names}"

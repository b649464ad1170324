"""From the trace of a region to its definition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.tracing.lowering import lower_trace
from thunder_plugin_nvfuser.definition import Definition, Value
from thunder_plugin_nvfuser.fusible import PLAIN, own_row
from thunder_plugin_nvfuser.inplace import row_of, written
from thunder_plugin_nvfuser.options import NvfuserOptions
from thunder_plugin_nvfuser.row import Kind, Row


class Unwritable(Exception):
    """A region that has no definition; the message says why."""


@dataclass(frozen=True, slots=True)
class Written:
    """A region as nvFuser gets it.

    Attributes:
        source: a Python function ``define(fd)``, which needs the name ``DataType``.
        inputs, outputs: of the region.
        kinds: of its operators.
    """

    source: str
    inputs: tuple[TensorProxy, ...]
    outputs: tuple[TensorProxy, ...]
    kinds: frozenset[Kind]


def write(region: Trace, options: NvfuserOptions) -> Written:
    """The definition of a region.

    Raises:
        Unwritable: it has a line without a row, or a row gave something else than the line.
    """
    definition = Definition()
    inputs = tuple([proxy for proxy in region.inputs if isinstance(proxy, TensorProxy)])
    values = {proxy.name: definition.add_input(proxy) for proxy in inputs}
    kinds = set()
    for line in _core_lines(region, options):
        row = row_of(line.symbol.target)
        if row is None:
            raise Unwritable(f"there is no row for {line.symbol.name}")
        kinds.add(row.kind)
        _write_line(definition, values, line, row)
    for proxy in region.output:
        definition.add_output(values[proxy.name], proxy)
    return Written(definition.python(), inputs, tuple(region.output), frozenset(kinds))


def _core_lines(region: Trace, options: NvfuserOptions) -> list[BoundSymbol]:
    """Core-ATen lines, and lines that are taken as they are."""
    lowered = lower_trace(replace(region, context=PLAIN))
    found: list[BoundSymbol] = []
    for line, with_parts in zip(region.symbols, lowered.symbols, strict=True):
        found += [line] if own_row(line, options) is not None else (with_parts.parts or (line,))
    return found


def _write_line(definition: Definition, values: dict[str, Value], line: BoundSymbol, row: Row) -> None:
    outputs = line.output if isinstance(line.output, list | tuple) else (line.output,)
    definition.results = tuple([proxy if isinstance(proxy, TensorProxy) else None for proxy in outputs])

    def value(leaf: Any) -> Any:
        return values[leaf.name] if isinstance(leaf, TensorProxy) else leaf

    made = row.build(definition, *map_leaves(value, line.args), **map_leaves(value, line.kwargs))
    results = made if isinstance(made, list | tuple) else (made,)
    for proxy, result in zip(definition.results, results, strict=True):
        if proxy is None:
            continue
        if result.shape != tuple(proxy.shape):
            raise Unwritable(f"{line.symbol.name} gave {list(result.shape)} instead of {list(proxy.shape)}")
        values[proxy.name] = definition.cast(result, proxy.dtype)
        target = written(line)
        if target is not None:  # whoever reads it by its old name reads the new value
            values[target.name] = values[proxy.name]

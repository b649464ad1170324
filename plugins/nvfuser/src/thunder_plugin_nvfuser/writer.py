"""Conversion of a region's trace to a definition."""

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
    """A region that cannot be defined; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Written:
    """The definition of a region.

    Attributes:
        source: a Python function ``define(fd)``, which refers to the name ``DataType``.
        inputs, outputs: inputs and outputs of the region.
        kinds: the kinds of its operators.
    """

    source: str
    inputs: tuple[TensorProxy, ...]
    outputs: tuple[TensorProxy, ...]
    kinds: frozenset[Kind]


def write(region: Trace, options: NvfuserOptions) -> Written:
    """The definition of a region.

    Raises:
        Unwritable: an operation has no row, or the shape of a result differs from that of the trace.
    """
    definition = Definition()
    inputs = tuple([proxy for proxy in region.inputs if isinstance(proxy, TensorProxy)])
    values = {proxy.name: definition.add_input(proxy) for proxy in inputs}
    kinds = set()
    for op in _core_ops(region, options):
        row = row_of(op.symbol.target)
        if row is None:
            raise Unwritable(f"there is no row for {op.symbol.name}")
        kinds.add(row.kind)
        _write_op(definition, values, op, row)
    for proxy in region.output:
        definition.add_output(values[proxy.name], proxy)
    return Written(definition.python(), inputs, tuple(region.output), frozenset(kinds))


def _core_ops(region: Trace, options: NvfuserOptions) -> list[BoundSymbol]:
    """The core-ATen operators, and operations that are not lowered."""
    lowered = lower_trace(replace(region, context=PLAIN))
    core: list[BoundSymbol] = []
    for op, with_parts in zip(region.symbols, lowered.symbols, strict=True):
        core += [op] if own_row(op, options) is not None else (with_parts.parts or (op,))
    return core


def _write_op(definition: Definition, values: dict[str, Value], op: BoundSymbol, row: Row) -> None:
    outputs = op.output if isinstance(op.output, list | tuple) else (op.output,)
    definition.results = tuple([proxy if isinstance(proxy, TensorProxy) else None for proxy in outputs])

    def value(leaf: Any) -> Any:
        return values[leaf.name] if isinstance(leaf, TensorProxy) else leaf

    results = row.build(definition, *map_leaves(value, op.args), **map_leaves(value, op.kwargs))
    results = results if isinstance(results, list | tuple) else (results,)
    for proxy, result in zip(definition.results, results, strict=True):
        if proxy is None:
            continue
        if result.shape != tuple(proxy.shape):
            raise Unwritable(f"{op.symbol.name} returned {list(result.shape)} instead of {list(proxy.shape)}")
        values[proxy.name] = definition.cast(result, proxy.dtype)
        target = written(op)
        if target is not None:  # later reads of the old name get the new value
            values[target.name] = values[proxy.name]

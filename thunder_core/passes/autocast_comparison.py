"""Whether two ways to make a call perform the same operations."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.autocast_log import CallLog
from thunder_core.passes.common_subexpression import literal_key
from thunder_core.passes.proxies import inputs_of, outputs_of


def same_operations(one: CallLog, other: CallLog) -> bool:
    """Whether two logs of a call compute the same values by as many and the same operations, in any order."""
    numbers: dict[Hashable, int] = {}
    if len(one.lines) != len(other.lines) or one.differentiable != other.differentiable:
        return False
    return _meaning(one, numbers) == _meaning(other, numbers)


def _meaning(log: CallLog, numbers: dict[Hashable, int]) -> tuple[list[int], list[int]]:
    """Numbers of the operations with effects, in order, and of the outputs; equal expressions have equal numbers."""
    values = {p.name: numbers.setdefault(("input", p.name), len(numbers)) for p in log.inputs.values()}
    effects: list[int] = []
    for line in log.lines:
        # within an epoch nothing is written, so what depends on what is all that counts
        key = (_call_key(line, values), len(effects))
        if not line.effects.pure:
            effects.append(numbers.setdefault(key, len(numbers)))
        for index, proxy in enumerate(outputs_of(line)):
            values[proxy.name] = numbers.setdefault((key, index), len(numbers))
    return effects, [values[proxy.name] for proxy in log.outputs]


def _call_key(line: BoundSymbol, values: dict[str, int]) -> Hashable:
    def numbered(leaf: Any) -> Any:
        return replace(leaf, name=f"value {values[leaf.name]}") if isinstance(leaf, TensorProxy) else leaf

    kwargs = {name: value for name, value in line.kwargs.items() if not _is_implied(line, name, value)}
    return line.symbol, literal_key(map_leaves(numbered, line.args)), literal_key(map_leaves(numbered, kwargs))


def _is_implied(line: BoundSymbol, name: str, value: Any) -> bool:
    """Whether an option is what a call has without it: a floating-point result has its argument's dtype."""
    first = next(iter(inputs_of(line)), None)
    return name == "dtype" and isinstance(first, TensorProxy) and value is first.dtype and value.is_floating_point

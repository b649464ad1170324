"""Copies into many inputs in one call."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace
from thunder_core.passes.operations import copy_all_uncounted, copy_uncounted
from thunder_core.pytorch_internals import foreach_copy_
from thunder_core.symbols.registry import registry

_GROUPED: Final = {
    registry.symbol_of(torch.Tensor.copy_): foreach_copy_,
    registry.symbol_of(copy_uncounted): copy_all_uncounted,
}
"""The operation that makes several copies at once."""


def with_grouped_copies(epilogue: Trace) -> Trace:
    """The epilogue with one call for each dtype and operation in place of adjacent copies of values into inputs.

    PyTorch copies a list of tensors of one dtype with few kernels. A training step of a ResNet-50 writes 159 running
    statistics. Copies that autograd records, that convert or overlap, and those into views that are read later, stay
    calls of their own.
    """
    written = {proxy.storage for op in epilogue.symbols for proxy in _written(op)}
    used = {proxy.name for op in epilogue.symbols for proxy in op.inputs()} | {p.name for p in epilogue.output}

    def place(op: BoundSymbol) -> Any:
        """The device and modes of a copy that can join others; None for other operations."""
        if op.symbol not in _GROUPED or op.kwargs or len(op.args) != 2 or op.is_recorded(epilogue.context):
            return None
        target, value = op.args
        if not isinstance(value, TensorProxy) or value.storage in written or op.output.name in used:
            return None
        same = (target.shape, target.dtype, target.device) == (value.shape, value.dtype, value.device)
        return (target.device, op.context) if same and target.contiguous and value.contiguous else None

    ops = list[BoundSymbol]()
    for key, group in groupby(epilogue.symbols, place):
        copies = list(group)
        if key is None or len({op.args[0].storage for op in copies}) < len(copies):
            ops += copies
            continue
        by_kind: dict[tuple[Symbol, torch.dtype], list[BoundSymbol]] = {}
        for op in copies:
            by_kind.setdefault((op.symbol, op.args[0].dtype), []).append(op)
        for members in by_kind.values():
            ops += [_grouped(members)] if len(members) > 1 else members
    return epilogue.with_symbols(ops, "grouped copies") if len(ops) < len(epilogue.symbols) else epilogue


def _written(op: BoundSymbol) -> list[TensorProxy]:
    return [proxy for proxy in op.inputs() if proxy.name in op.effects.mutates and isinstance(proxy, TensorProxy)]


def _grouped(copies: Sequence[BoundSymbol]) -> BoundSymbol:
    targets, values = (tuple([op.args[index] for op in copies]) for index in (0, 1))
    symbol, args, kwargs = registry.resolve(_GROUPED[copies[0].symbol], (targets, values), {})
    effects = Effects(mutates=tuple([target.name for target in targets]))
    return BoundSymbol(symbol, args, kwargs, None, effects, copies[0].context, copies[0].location)

"""In-place variants of calls that add a matmul to their first argument."""

from __future__ import annotations

from dataclasses import replace

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_storages import MovedStorages
from thunder_core.symbols.registry import registry


def accumulated_in_place(trace: Trace, name: str) -> Trace:
    """The executable trace with such calls in place, if the trace creates their first argument and nothing reads it."""
    return _InPlace(trace).run(name)


class _InPlace:
    """The state of one pass over a trace."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.aliases = Aliases.of(trace)
        self.moved_storages = MovedStorages()

    def run(self, name: str) -> Trace:
        ops = [self._op(index, op) for index, op in enumerate(self.trace.symbols)]
        if not self.moved_storages:
            return self.trace
        output = map_leaves(self.moved_storages.value, self.trace.output)
        return replace(self.trace.with_symbols(ops, name), output=output)

    def _op(self, index: int, op: BoundSymbol) -> BoundSymbol:
        twin = self._twin(index, op)
        if twin is not None:
            self.moved_storages.move(op.output, op.args[0])
            op = replace(op, symbol=twin, effects=Effects(mutates=(op.args[0].name,)))
        return self.moved_storages.op(op)

    def _twin(self, index: int, op: BoundSymbol) -> Symbol | None:
        """The in-place symbol if its result is the same and the old value is not read later; else None."""
        if Tag.ACCUMULATION not in op.symbol.tags or not op.effects.pure or op.symbol.executor is not None:
            return None
        x, result = op.args[0], op.output
        if op.is_recorded(self.trace.context) or not self.aliases.is_created(x.storage):
            return None
        if not self.aliases.is_last_read_at(x.storage, index):
            return None
        if any(isinstance(item, TensorProxy) and item.storage == x.storage for item in op.args[1:]):
            return None  # matmuls must not write to their operands
        alike = (x.geometry, x.dtype, x.contiguous) == (result.geometry, result.dtype, True)
        return registry.inplace_twin(op.symbol) if alike else None

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
        lines = [self._line(index, line) for index, line in enumerate(self.trace.symbols)]
        if not self.moved_storages:
            return self.trace
        output = map_leaves(self.moved_storages.value, self.trace.output)
        return replace(self.trace.with_symbols(lines, name), output=output)

    def _line(self, index: int, line: BoundSymbol) -> BoundSymbol:
        twin = self._twin(index, line)
        if twin is not None:
            self.moved_storages.move(line.output, line.args[0])
            line = replace(line, symbol=twin, effects=Effects(mutates=(line.args[0].name,)))
        return self.moved_storages.op(line)

    def _twin(self, index: int, line: BoundSymbol) -> Symbol | None:
        """The in-place symbol if its result is the same and the old value is not read later; else None."""
        if Tag.ACCUMULATION not in line.symbol.tags or not line.effects.pure or line.symbol.executor is not None:
            return None
        x, result = line.args[0], line.output
        if line.is_recorded(self.trace.context) or not self.aliases.is_created(x.storage):
            return None
        if not self.aliases.is_last_read_at(x.storage, index):
            return None
        if any(isinstance(item, TensorProxy) and item.storage == x.storage for item in line.args[1:]):
            return None  # matmuls must not write to their operands
        alike = (x.geometry, x.dtype, x.contiguous) == (result.geometry, result.dtype, True)
        return registry.inplace_twin(line.symbol) if alike else None

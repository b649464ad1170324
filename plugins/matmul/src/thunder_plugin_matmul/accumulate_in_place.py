"""Calls that add a product to their first argument, in its memory."""

from __future__ import annotations

from dataclasses import replace

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_memories import MovedMemories
from thunder_core.symbols.registry import registry


def accumulated_in_place(trace: Trace, name: str) -> Trace:
    """The executable trace with such calls in place where the trace created that storage and nobody reads it later."""
    return _InPlace(trace).run(name)


class _InPlace:
    """One walk."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.aliases = Aliases.of(trace)
        self.memories = MovedMemories()

    def run(self, name: str) -> Trace:
        lines = [self._line(index, line) for index, line in enumerate(self.trace.symbols)]
        if not self.memories:
            return self.trace
        output = map_leaves(self.memories.value, self.trace.output)
        return replace(self.trace.with_symbols(lines, name), output=output)

    def _line(self, index: int, line: BoundSymbol) -> BoundSymbol:
        twin = self._twin(index, line)
        if twin is not None:
            self.memories.move(line.output, line.args[0])
            line = replace(line, symbol=twin, effects=Effects(mutates=(line.args[0].name,)))
        return self.memories.line(line)

    def _twin(self, index: int, line: BoundSymbol) -> Symbol | None:
        """The in-place symbol where its result is the same and nobody misses the old value; else None."""
        if Tag.ACCUMULATION not in line.symbol.tags or not line.effects.pure or line.symbol.executor is not None:
            return None
        x, result = line.args[0], line.output
        if line.is_recorded(self.trace.context) or not self.aliases.is_created(x.storage):
            return None
        if not self.aliases.is_last_read_at(x.storage, index):
            return None
        if any(isinstance(item, TensorProxy) and item.storage == x.storage for item in line.args[1:]):
            return None  # a factor, too: products read their factors while they write
        alike = (x.geometry, x.dtype, x.contiguous) == (result.geometry, result.dtype, True)
        return registry.inplace_twin(line.symbol) if alike else None

"""When the memories of a trace are made and last read."""

from __future__ import annotations

from collections import Counter

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tensors import tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.pytorch_internals import OpOverload, schema_of

# Results of these lie in new memory whatever strides their arguments come with; a reshape may be a copy or a view.
_MAKERS = frozenset({Tag.MATMUL, Tag.ELEMENTWISE, Tag.REDUCTION})


class Lifetimes:
    """One walk over a trace; lines are known by their positions.

    Attributes:
        definer: the line that defines a name; inputs have none.
        uses: how often lines and the output name a value.
    """

    def __init__(self, trace: Trace) -> None:
        self.definer: dict[str, int] = {}
        self.uses: Counter[str] = Counter()
        self._maker: dict[int, BoundSymbol | None] = {}
        self._last: dict[int, int] = {}
        for proxy in trace.inputs:
            if isinstance(proxy, TensorProxy):
                self._maker[proxy.storage] = None
        for index, line in enumerate(trace.symbols):
            self.uses.update(proxy.name for proxy in line.inputs())
            for proxy in tensor_inputs_of(line):
                self._last[proxy.storage] = index
            for proxy in tensor_outputs_of(line):
                self.definer[proxy.name] = index
                self._maker.setdefault(proxy.storage, line)
        for proxy in iterate_proxies(trace.output):
            self.uses[proxy.name] += 1
            if isinstance(proxy, TensorProxy):
                self._last[proxy.storage] = len(trace.symbols)

    def ends_at(self, proxy: TensorProxy, index: int) -> bool:
        """Whether no line after ``index`` reads the memory of ``proxy``, nor the caller."""
        return self._last.get(proxy.storage, -1) <= index

    def is_own(self, proxy: TensorProxy) -> bool:
        """Whether the memory of ``proxy`` certainly was made by the trace itself: by a line or within a region."""
        maker = self._maker.get(proxy.storage)
        if maker is None or not maker.effects.pure:
            return False
        inside = next((part for part in maker.parts if _defines(part, proxy.storage)), None)
        return _makes(maker if inside is None else inside)


def _defines(line: BoundSymbol, storage: int) -> bool:
    return any(proxy.storage == storage for proxy in tensor_outputs_of(line))


def _makes(line: BoundSymbol) -> bool:
    target = line.symbol.target
    if isinstance(target, OpOverload):
        return not any(result.alias_info for result in schema_of(target).returns)
    return not _MAKERS.isdisjoint(line.symbol.tags)

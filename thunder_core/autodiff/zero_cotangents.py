"""Backward for the case that some outputs got no cotangent, or that some gradients are not asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.pass_manager import TracePass
from thunder_core.passes.proxies import inputs_of, outputs_of
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class ZeroCotangents(TracePass):
    """Specialises a backward program.

    A backward program is linear in its cotangents. So a line all of whose cotangent-dependent arguments are zero gives
    zero and goes away; a sum with a zero is its other argument; elsewhere a zero is made where a line needs one. Sums
    are recognised as what backward programs add cotangents with.

    Attributes:
        cotangents: names of all cotangents.
        absent: names of those that are zero.
        unwanted: positions of gradients that nobody asks for.
    """

    cotangents: frozenset[str]
    absent: frozenset[str] = frozenset()
    unwanted: frozenset[int] = frozenset()

    def run(self, trace: Trace) -> Trace:
        walk = _Walk(self.cotangents, self.absent)
        for bound in trace.symbols:
            walk.line(bound)
        output = tuple(
            [
                None if index in self.unwanted or item is None or item.name in walk.zero else walk.value(item)
                for index, item in enumerate(trace.output)
            ]
        )
        return DeadCode().run(replace(trace.with_symbols(walk.lines, self.name), output=output))


class _Walk:
    """One walk over the backward program.

    Attributes:
        dependent: values that depend on a cotangent.
        zero: those of them that are zero.
        lines: what is left.
    """

    def __init__(self, cotangents: frozenset[str], absent: frozenset[str]) -> None:
        self.dependent = set(cotangents)
        self.zero = set(absent)
        self.lines: list[BoundSymbol] = []
        self._replaced: dict[str, Any] = {}
        self._sum = registry.resolve(torch.add, (0, 0), {})[0]

    def value(self, leaf: Any) -> Any:
        """What stands for a value now."""
        return self._replaced.get(leaf.name, leaf) if isinstance(leaf, TensorProxy) else leaf

    def line(self, bound: BoundSymbol) -> None:
        """Keep, simplify or drop one line."""
        inputs = {proxy.name for proxy in inputs_of(bound)} & self.dependent
        outputs = outputs_of(bound)
        if not inputs:
            self.lines.append(bound)
            return
        self.dependent.update(proxy.name for proxy in outputs)
        zeros = inputs & self.zero
        if zeros == inputs:
            self.zero.update(proxy.name for proxy in outputs)
        elif zeros and bound.symbol is self._sum and len(bound.args) == 2 and not bound.kwargs:
            (kept,) = [item for item in bound.args if getattr(item, "name", None) not in zeros]
            self._replaced[outputs[0].name] = self.value(kept)
        else:
            self._make(zeros, bound)
            self.lines.append(bound.map_arguments(self.value))

    def _make(self, names: set[str], bound: BoundSymbol) -> None:
        """Lines that make the zeros of these names."""
        for proxy in inputs_of(bound):
            if proxy.name in names & self.zero and isinstance(proxy, TensorProxy):
                kwargs = {"dtype": proxy.dtype, "device": proxy.device}
                symbol, args, kwargs = registry.resolve(torch.zeros, (tuple(proxy.shape),), kwargs)
                self.zero.discard(proxy.name)
                self.lines.append(BoundSymbol(symbol, args, kwargs, proxy, context=bound.context))

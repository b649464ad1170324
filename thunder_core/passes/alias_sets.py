"""Which memory a trace writes, and which memory leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies


@dataclass(frozen=True, slots=True)
class AliasSets:
    """Storage numbers with a special role in one trace.

    Attributes:
        pinned: written by a line, or handed to one with external effects: objects of this memory are told apart.
        escaping: reachable through the trace's outputs.
        returned: names among the outputs.
    """

    pinned: frozenset[int]
    escaping: frozenset[int]
    returned: frozenset[str]

    @classmethod
    def of(cls, trace: Trace) -> AliasSets:
        """Collect the sets in one walk."""
        pinned: set[int] = set()
        for bound in trace.symbols:
            effects = bound.effects
            if effects.external or effects.mutates:
                pinned.update(_touched(bound))
        outputs = list(iterate_proxies(trace.output))
        escaping = {proxy.storage for proxy in outputs if isinstance(proxy, TensorProxy)}
        return cls(frozenset(pinned), frozenset(escaping), frozenset(proxy.name for proxy in outputs))


def _touched(bound: BoundSymbol) -> set[int]:
    effects = bound.effects
    return {
        proxy.storage
        for proxy in bound.inputs()
        if isinstance(proxy, TensorProxy) and (effects.external or proxy.name in effects.mutates)
    }

"""Which memory a trace writes, and which memory leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tensors import tensor_inputs_of, tensors_written_by
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
            touched = tensor_inputs_of(bound) if bound.effects.external else tensors_written_by(bound)
            pinned.update(proxy.storage for proxy in touched)
        outputs = list(iterate_proxies(trace.output))
        escaping = {proxy.storage for proxy in outputs if isinstance(proxy, TensorProxy)}
        return cls(frozenset(pinned), frozenset(escaping), frozenset(proxy.name for proxy in outputs))

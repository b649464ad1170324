"""Dead-code elimination."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol, tensors_written_by
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Pass, PassContext


@dataclass(frozen=True)
class DeadCode(Pass[Trace]):
    """Removes ops without an observable effect.

    An op stays if it draws random numbers, communicates, has external effects, defines a name that is used later, or
    writes storage that is read later: by a later op, or by the caller through an input or output. Linear in the length
    of the trace.
    """

    name: ClassVar[str] = "DeadCode"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return without_dead_code(trace, self.name)


def without_dead_code(trace: Trace, provenance: str = DeadCode.name) -> Trace:
    """The trace without the ops that `DeadCode` removes; itself if there are none."""
    live = _Live(trace)
    needed = [bound for bound in reversed(trace.symbols) if live.needs(bound)]
    if len(needed) == len(trace.symbols):
        return trace
    needed.reverse()
    return trace.with_symbols(needed, provenance)


class _Live:
    """The names and storages that are read after the current op, in a backward walk over the trace."""

    def __init__(self, trace: Trace) -> None:
        self.names: set[str] = set()
        self.storages: set[int] = set()
        for proxy in chain(trace.inputs, iterate_proxies(trace.output)):
            if isinstance(proxy, TensorProxy):
                self.storages.add(proxy.storage)
        self.names.update(proxy.name for proxy in iterate_proxies(trace.output))

    def needs(self, bound: BoundSymbol) -> bool:
        """Whether the op is needed; if so, mark its inputs as needed."""
        if not self._needed(bound):
            return False
        names, storages = self.names, self.storages
        for proxy in bound.inputs():
            names.add(proxy.name)
            if type(proxy) is TensorProxy:
                storages.add(proxy.storage)
        return True

    def _needed(self, bound: BoundSymbol) -> bool:
        if bound.effects.irremovable:
            return True
        names = self.names
        for proxy in bound.outputs():
            if proxy.name in names:
                return True
        return any(proxy.storage in self.storages for proxy in tensors_written_by(bound))

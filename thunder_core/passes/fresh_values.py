"""Names and memories for new values of a trace."""

from __future__ import annotations

from collections.abc import Iterator

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.symbols.renaming import Renaming


class FreshValues:
    """Names and storages that no value of a program has."""

    def __init__(self, names: set[str], storage: int) -> None:
        self.names = names
        self.storage = storage

    @classmethod
    def of(cls, trace: Trace) -> FreshValues:
        """What is free in a trace and in the programs among the arguments of its lines."""
        proxies = list(_all_values(trace))
        storage = 1 + max((p.storage for p in proxies if isinstance(p, TensorProxy)), default=-1)
        return cls({proxy.name for proxy in proxies}, storage)

    def name(self, stem: str) -> str:
        """``stem``, or something like it."""
        name, count = stem, 1
        while name in self.names:
            name, count = f"{stem}_{count}", count + 1
        self.names.add(name)
        return name

    def new_storage(self) -> int:
        """The next number."""
        self.storage += 1
        return self.storage - 1

    def carry_over(
        self, model: BoundSymbol, lines: tuple[BoundSymbol, ...], bound: BoundSymbol
    ) -> tuple[BoundSymbol, ...]:
        """Lines that stand for ``model``, with the values, context and location of ``bound``, an equal call."""
        renaming = Renaming(model, bound, self.names, self.storage)
        lines = renaming.apply(lines)
        self.storage = renaming.next_storage
        self.names.update(proxy.name for line in lines for proxy in line.outputs())
        return lines


def bodies_of(trace: Trace) -> Iterator[Trace]:
    """The programs among the arguments of the lines."""
    for bound in trace.symbols:
        yield from (leaf for leaf in iterate_leaves((bound.args, bound.kwargs)) if isinstance(leaf, Trace))


def _all_values(trace: Trace) -> Iterator[Proxy]:
    yield from trace.inputs
    for bound in trace.symbols:
        yield from bound.outputs()
    for body in bodies_of(trace):
        yield from _all_values(body)

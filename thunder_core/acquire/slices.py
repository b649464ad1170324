"""Which of the recorded lines decide what a storage contains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.tensors import written_storages


def slice_of(lines: Sequence[BoundSymbol], storages: set[int]) -> list[BoundSymbol]:
    """The lines that define or write any of ``storages``, to which the storages that they read are added."""
    kept: list[BoundSymbol] = []
    for line in reversed(lines):
        defined = {proxy.storage for proxy in line.outputs() if isinstance(proxy, TensorProxy)}
        if not storages.isdisjoint(written_storages([line]) | defined):
            kept.append(line)
            storages.update(proxy.storage for proxy in line.inputs() if isinstance(proxy, TensorProxy))
    kept.reverse()
    return kept


def is_random(lines: Sequence[BoundSymbol], inputs: Iterable[Proxy], storages: Iterable[int]) -> bool:
    """Whether random numbers of the program decide what ``storages`` contain, and none of its inputs does."""
    wanted = set(storages)
    deciding = slice_of(lines, wanted)
    given = {proxy.storage for proxy in inputs if isinstance(proxy, TensorProxy)}
    made = {proxy.storage for line in deciding for proxy in line.outputs() if isinstance(proxy, TensorProxy)}
    return any(line.effects.random for line in deciding) and wanted <= made - given

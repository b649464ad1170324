"""The lines of a region as a program: what goes in, what comes out, and what must stay outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Stage, Trace


@dataclass(frozen=True, slots=True)
class RegionProgram:
    """A region that can be compiled.

    Attributes:
        trace: functional but for lines that write into inputs. Its outputs share memory neither with its inputs nor
            with each other.
        outside: views of inputs or results of the region, taken after it.
    """

    trace: Trace
    outside: tuple[BoundSymbol, ...]

    @staticmethod
    def of(lines: Sequence[BoundSymbol], needed: set[str], ambient: Trace) -> RegionProgram:
        """The program of ``lines``, of which others read the values ``needed``. Views among these stay outside."""
        definer = {proxy.name: index for index, line in enumerate(lines) for proxy in line.outputs()}
        given = {
            proxy.storage
            for line in lines
            for proxy in line.inputs()
            if isinstance(proxy, TensorProxy) and proxy.name not in definer
        }
        outside: set[int] = set()
        needed = set(needed)
        while True:
            views = _views(lines, needed, definer, given)
            if not views:
                break
            index = max(views)
            outside.add(index)
            needed -= {proxy.name for proxy in lines[index].outputs()}
            needed |= {proxy.name for proxy in lines[index].inputs() if proxy.name in definer}
        return RegionProgram(_trace(lines, needed, ambient), tuple([lines[index] for index in sorted(outside)]))


def _views(lines: Sequence[BoundSymbol], needed: set[str], definer: dict[str, int], given: set[int]) -> list[int]:
    """Lines whose results are needed and share memory with an input or with another needed result."""
    seen = set(given)
    found = []
    for index, line in enumerate(lines):
        for proxy in line.outputs():
            if proxy.name not in needed or not isinstance(proxy, TensorProxy):
                continue
            if proxy.storage in seen:
                found.append(index)
            seen.add(proxy.storage)
    return found


def _trace(lines: Sequence[BoundSymbol], needed: set[str], ambient: Trace) -> Trace:
    live, kept = set(needed), []
    for line in reversed(lines):
        if line.effects.mutates or not live.isdisjoint([proxy.name for proxy in line.outputs()]):
            kept.append(line)
            live.update([proxy.name for proxy in line.inputs()])
    kept.reverse()
    made = {proxy.name: proxy for line in kept for proxy in line.outputs()}
    inputs = {proxy.name: proxy for line in kept for proxy in line.inputs() if proxy.name not in made}
    output = tuple([proxy for name, proxy in made.items() if name in needed])
    context = ambient.context if not kept or kept[0].context is None else kept[0].context
    stage = Stage.EXECUTABLE if any(line.effects.mutates for line in kept) else Stage.FUNCTIONAL
    return Trace("region", tuple(inputs.values()), tuple(kept), output, stage, "fusion", context)

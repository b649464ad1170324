"""Storage numbers of a program that reads copies, or makes memory again of which it was also given a view."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import count

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.tensors import tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_memories import Place


def renumbered(
    inputs: Iterable[Proxy], lines: list[BoundSymbol], substitutes: Mapping[str, Proxy]
) -> tuple[list[BoundSymbol], dict[str, Proxy]]:
    """The lines with the right memory, reading ``substitutes`` instead of the values of those names.

    A line that computes again what lies in the memory of an input makes new memory, which needs a number of its own;
    so do the views of it. Also returned is what stands for each value whose proxy is another than before.
    """
    owned = {proxy.storage for proxy in inputs if isinstance(proxy, TensorProxy)}
    changed: dict[str, Proxy] = dict(substitutes)
    if not changed and not any(_clashes(line, owned) for line in lines):
        return lines, changed
    numbers = [proxy.storage for line in lines for proxy in (*tensor_inputs_of(line), *tensor_outputs_of(line))]
    fresh = count(max([*numbers, *owned], default=-1) + 1)
    return [_renumbered_line(line, owned, changed, fresh) for line in lines], changed


def _clashes(line: BoundSymbol, owned: set[int]) -> bool:
    """Whether the line makes new memory under a number that is taken."""
    outputs = [proxy for proxy in tensor_outputs_of(line) if proxy.storage in owned]
    return bool(outputs) and not {proxy.storage for proxy in outputs} <= {p.storage for p in tensor_inputs_of(line)}


def _renumbered_line(
    line: BoundSymbol, owned: set[int], changed: dict[str, Proxy], fresh: Iterable[int]
) -> BoundSymbol:
    places: dict[int, Place] = {}
    for proxy in tensor_inputs_of(line):
        actual = changed.get(proxy.name, proxy)
        assert isinstance(actual, TensorProxy)
        places.setdefault(proxy.storage, Place.where(proxy, actual))
    for proxy in tensor_outputs_of(line):
        if proxy.storage not in places:
            places[proxy.storage] = Place(next(iter(fresh)) if proxy.storage in owned else proxy.storage)
        if places[proxy.storage].storage != proxy.storage:
            changed[proxy.name] = places[proxy.storage].moved(proxy)
    owned.update(place.storage for place in places.values())

    def current(leaf: object) -> object:
        return changed.get(leaf.name, leaf) if isinstance(leaf, PROXY_TYPES) else leaf

    return replace(line.map_arguments(current), output=map_leaves(current, line.output))

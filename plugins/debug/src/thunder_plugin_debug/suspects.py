"""Which operations of a fused region may be the wrong ones."""

from __future__ import annotations

from thunder_core.ir.bound_symbol import BoundSymbol


def suspects(region: BoundSymbol, wrong: set[str]) -> tuple[BoundSymbol, ...]:
    """The lines that the first wrong result of a region depends on, without those that a right result depends on.

    The last of them gives that wrong result. All of them may be right only if a wrong line has no influence on a right
    result that depends on it.

    Args:
        region: a line with ``parts``.
        wrong: names of its results that are wrong; at least one.
    """
    first = next(index for index, part in enumerate(region.parts) if not wrong.isdisjoint(_made(part)))
    right = {proxy.name for proxy in region.outputs()} - wrong
    cleared = _needed(region, right)
    accused = _needed(region, set(_made(region.parts[first])) & wrong)
    found = [part for index, part in enumerate(region.parts) if index in accused - cleared or index == first]
    return tuple(found)


def _needed(region: BoundSymbol, names: set[str]) -> set[int]:
    """Positions of the parts that these values depend on."""
    wanted, found = set(names), set()
    for index in range(len(region.parts) - 1, -1, -1):
        part = region.parts[index]
        if not wanted.isdisjoint(_made(part)):
            found.add(index)
            wanted.update([proxy.name for proxy in part.inputs()])
    return found


def _made(part: BoundSymbol) -> list[str]:
    return [proxy.name for proxy in part.outputs()]

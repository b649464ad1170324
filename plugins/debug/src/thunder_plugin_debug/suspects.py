"""The operations of a fused region that may be wrong."""

from __future__ import annotations

from thunder_core.ir.bound_symbol import BoundSymbol


def suspects(region: BoundSymbol, wrong: set[str]) -> tuple[BoundSymbol, ...]:
    """The operations on which the first wrong result of a region depends, without those on which a correct one depends.

    The last of them computes that wrong result. They miss the wrong operation only if it has no effect on a correct
    result that depends on it.

    Args:
        region: an operation with ``parts``.
        wrong: names of its wrong results; at least one.
    """
    first = next(index for index, part in enumerate(region.parts) if not wrong.isdisjoint(_outputs(part)))
    right = {proxy.name for proxy in region.outputs()} - wrong
    cleared = _needed(region, right)
    accused = _needed(region, set(_outputs(region.parts[first])) & wrong)
    operations = [part for index, part in enumerate(region.parts) if index in accused - cleared or index == first]
    return tuple(operations)


def _needed(region: BoundSymbol, names: set[str]) -> set[int]:
    """Positions of the parts on which these values depend."""
    wanted, positions = set(names), set()
    for index in range(len(region.parts) - 1, -1, -1):
        part = region.parts[index]
        if not wanted.isdisjoint(_outputs(part)):
            positions.add(index)
            wanted.update([proxy.name for proxy in part.inputs()])
    return positions


def _outputs(part: BoundSymbol) -> list[str]:
    return [proxy.name for proxy in part.outputs()]

"""Put transforms in order, and check what they say of each other."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from thunder_core.errors import TransformError
from thunder_core.passes.transform import Transform


def ordered(transforms: Sequence[Transform]) -> tuple[Transform, ...]:
    """The transforms in the given order, except where their ``before`` and ``after`` ask for another.

    Raises:
        TransformError: one is there twice, requires one that is not there, conflicts with one that is, or they cannot
            be put in any order.
    """
    names = [transform.name for transform in transforms]
    _check(transforms, names)
    earlier: dict[int, set[int]] = {index: set() for index in range(len(names))}
    for index, transform in enumerate(transforms):
        for other in transform.before:
            if other in names:
                earlier[names.index(other)].add(index)
        for other in transform.after:
            if other in names:
                earlier[index].add(names.index(other))
    sorter = TopologicalSorter(earlier)
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " before ".join(names[index] for index in error.args[1])
        raise TransformError(f"the transforms cannot be put in order: {circle}") from error
    result: list[Transform] = []
    ready: list[int] = []
    while sorter.is_active():
        ready = sorted([*ready, *sorter.get_ready()])
        result.append(transforms[ready[0]])
        sorter.done(ready.pop(0))
    return tuple(result)


def _check(transforms: Sequence[Transform], names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise TransformError(f"the transform {name!r} is there twice", advice=("keep one of them",))
    for transform in transforms:
        for other in transform.requires:
            if other not in names:
                near = difflib.get_close_matches(other, names, 1)
                hint = f" (there is {near[0]!r})" if near else ""
                raise TransformError(
                    f"the transform {transform.name!r} requires {other!r}, which is not there{hint}",
                    advice=(f"add {other!r} to the transforms", f"or remove {transform.name!r}"),
                )
        for other in transform.conflicts:
            if other in names:
                raise TransformError(
                    f"the transform {transform.name!r} conflicts with {other!r}", advice=("remove one of them",)
                )

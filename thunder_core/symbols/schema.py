"""What operators do to their arguments, from their schemas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class MutatedArgument:
    """An argument that an operator writes.

    Attributes:
        name: the keyword.
        position: its place among positional arguments; None if it is keyword-only.
    """

    name: str
    position: int | None


def schema_effects(func: Callable[..., Any]) -> tuple[MutatedArgument, ...] | None:
    """The arguments that an operator writes, in schema order; None if ``func`` has no schema.

    For a packet, those of all its overloads: an argument counts only if it is given. Custom operators of
    ``torch.library`` have schemas like all others.
    """
    overloads = _overloads(func)
    return None if overloads is None else _mutated(overloads)


def schema_is_random(func: Callable[..., Any]) -> bool | None:
    """Whether an operator consumes random numbers, by its tags; None if ``func`` has no schema."""
    overloads = _overloads(func)
    return None if overloads is None else _is_random(overloads)


def written_values(
    effects: tuple[MutatedArgument, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The values of the arguments that a call writes, without the absent ones."""
    found = []
    for item in effects:
        if item.name in kwargs:
            found.append(kwargs[item.name])
        elif item.position is not None and item.position < len(args):
            found.append(args[item.position])
    return tuple(value for value in found if value is not None)


def _overloads(func: Any) -> tuple[torch._ops.OpOverload, ...] | None:
    """The overloads that ``func`` may stand for; None when it is no operator."""
    if isinstance(func, torch._library.custom_ops.CustomOpDef):
        return (func._opoverload,)
    if isinstance(func, torch._ops.OpOverload):
        return (func,)
    if isinstance(func, torch._ops.OpOverloadPacket):
        return tuple(getattr(func, name) for name in func.overloads())
    return None


# A view that its schema calls a write.
_WRONGLY_ANNOTATED = frozenset({"prims::as_strided"})


@cache
def _mutated(overloads: tuple[torch._ops.OpOverload, ...]) -> tuple[MutatedArgument, ...]:
    found = [
        MutatedArgument(argument.name, None if argument.kwarg_only else position)
        for overload in overloads
        if overload._schema.name not in _WRONGLY_ANNOTATED
        for position, argument in enumerate(overload._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return tuple(dict.fromkeys(found))


@cache
def _is_random(overloads: tuple[torch._ops.OpOverload, ...]) -> bool:
    return any(torch.Tag.nondeterministic_seeded in overload.tags for overload in overloads)

"""The channels in which operators communicate with other processes: their process groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch

from thunder_core.ir.effects import WAITS
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace, derivatives_of
from thunder_core.pytorch_internals import OpOverload, process_group_named, schema_of
from thunder_core.symbols.registry import registry
from thunder_core.symbols.schema import communicates

_GROUPS: Final = frozenset({"group", "group_name", "process_group"})
_COMMUNICATION: Final = frozenset({Tag.COLLECTIVE, Tag.WAIT})


def channels_of(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    """The channels (`thunder_core.ir.effects.Effects`) of a call of an operator.

    Operators communicate if they are PyTorch's collectives, or have a row with the tag COLLECTIVE or WAIT. Empty for
    others, and for those whose process group is unknown.
    """
    tags = _tags(operator)
    if tags.isdisjoint(_COMMUNICATION) and not communicates(operator):
        return ()
    if Tag.WAIT in tags or schema_of(operator).name.endswith("::wait_tensor"):
        return (WAITS,)
    given = dict(zip([argument.name for argument in schema_of(operator).arguments], args, strict=False)) | kwargs
    found = [group_name(value) for name, value in given.items() if name in _GROUPS]
    return tuple(dict.fromkeys(name for name in found if name is not None))


def group_name(group: Any) -> str | None:
    """The name of a process group that an operator is given, as a name or an object; None if it is neither."""
    if isinstance(group, torch.ScriptObject):
        group = torch.distributed.ProcessGroup.unbox(group)
    name = group if isinstance(group, str) else getattr(group, "group_name", None)
    return name if isinstance(name, str) else None


def groups_of(programs: Iterable[Trace]) -> dict[str, tuple[int, ...]]:
    """The ranks of the process groups that programs communicate in, by name."""
    traces = [each for trace in programs for each in (trace, *derivatives_of(trace).values())]
    names = {group for trace in traces for op in trace.symbols for group in op.effects.groups}
    return {name: ranks_of(name) for name in sorted(names)}


def ranks_of(group: str) -> tuple[int, ...]:
    """The ranks of a process group, in its order."""
    return tuple(torch.distributed.get_process_group_ranks(process_group_named(group)))


def _tags(operator: OpOverload) -> frozenset[Tag]:
    known = registry.catalogue.spellings.get(operator)
    return frozenset() if known is None else frozenset(known.row.tags)

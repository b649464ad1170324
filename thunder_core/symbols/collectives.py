"""Communication between processes as lines of a trace: one starts it, and one waits for it.

Each works on buffers that no other line sees, so that passes need not know of memory that is written meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.ir.effects import WAITS
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import OpOverload, schema_of
from thunder_core.symbols.registry import registry
from thunder_core.symbols.schema import communicates


def start(operator: Any, written: tuple[int, ...], *args: Any) -> tuple[Any, ...]:
    """Call an operator of ``torch.ops.c10d`` with copies of the tensors that it writes.

    Args:
        written: which of the tensors in ``args`` the operator writes, in the order of their appearance.

    Returns:
        The handle of the communication, or None, and the copies. These have their values once it is waited for.
    """
    buffers: dict[int, torch.Tensor] = {}
    count = -1

    def given(leaf: Any) -> Any:
        nonlocal count
        if not isinstance(leaf, torch.Tensor):
            return leaf
        count += 1
        if count not in written:
            return leaf
        buffers[count] = leaf.clone()
        return buffers[count]

    with torch.no_grad():
        result = operator(*map_leaves(given, args))
    handle = result[-1] if isinstance(result, tuple) else result
    return (handle if handle is None else torch.distributed.Work.unbox(handle), *[buffers[place] for place in written])


def wait(handle: Any, *tensors: torch.Tensor) -> None:
    """Wait for a communication that writes nothing; it reads ``tensors`` until then."""
    if handle is not None:
        handle.wait()


def receive(handle: Any, buffer: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
    """Wait for a communication and return what it wrote to a buffer; it reads ``tensors`` until then."""
    wait(handle)
    return (buffer.detach().clone(),)


START: Final = Symbol("thunder_core.symbols.collectives.start", start)
WAIT: Final = Symbol("thunder_core.symbols.collectives.wait", wait)
RECEIVE: Final = Symbol("thunder_core.symbols.collectives.receive", receive)
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


def _tags(operator: OpOverload) -> frozenset[Tag]:
    entry = registry.catalogue.entries.get(operator)
    return frozenset() if entry is None else frozenset(entry.row.tags)

"""The ops of collectives: one starts a communication of tensors, others wait for it; one exchanges Python objects.

The communication works on buffers that no other op accesses, so that passes need not model its concurrent writes.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.errors import DataDependentError
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import process_group_named
from thunder_plugin_distributed.pytorch_internals import end_coalescing, start_coalescing


def start(operator: Any, written: tuple[int, ...], *args: Any, reduction: str = "") -> tuple[Any, ...]:
    """Call an operator of ``torch.ops.c10d`` with copies of the tensors that it writes.

    Args:
        written: which of the tensors in ``args`` the operator writes, in the order of their appearance.
        reduction: name of the reduction, such as ``sum``, for readers of the trace; ``args`` contain it as an object.

    Returns:
        The handle of the communication, or None, and the copies, whose values are valid after the wait.
    """
    result, buffers = _called_with_copies(operator, written, args)
    handle = result[-1] if isinstance(result, tuple) else result
    return (handle if handle is None else torch.distributed.Work.unbox(handle), *buffers)


def start_together(group: str, device: torch.device, *calls: tuple[Any, ...]) -> tuple[Any, ...]:
    """Start the communications of several calls of `start` as one: none of them waits for another.

    Args:
        group: the name of the process group.
        device: that of the tensors.
        calls: for each call, the operator, which of its tensors it writes, and its arguments, as `start` takes them.

    Returns:
        The handle of all communications, or None, and the copies, whose values are valid after the wait.
    """
    process_group: Any = process_group_named(group)
    buffers: list[torch.Tensor] = []
    start_coalescing(process_group, device)
    for operator, written, *args in calls:
        buffers += _called_with_copies(operator, written, tuple(args))[1]
    return (end_coalescing(process_group, device), *buffers)


def _called_with_copies(
    operator: Any, written: tuple[int, ...], args: tuple[Any, ...]
) -> tuple[Any, list[torch.Tensor]]:
    """The result of an operator that was given copies of the tensors that it writes, and the copies."""
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
    return result, [buffers[place] for place in written]


def wait(handle: Any, *tensors: torch.Tensor) -> None:
    """Wait for a communication that writes nothing; it reads ``tensors`` until then."""
    if handle is not None:
        handle.wait()


def receive(handle: Any, buffer: torch.Tensor, *tensors: torch.Tensor) -> tuple[torch.Tensor]:
    """Wait for a communication and return a copy of the buffer that it wrote; it reads ``tensors`` until then."""
    wait(handle)
    return (buffer.detach().clone(),)


def exchange_objects(
    collective: str, group: str, sent: list[Any], received: int, peer: int | None, device: torch.device | None
) -> tuple[Any, ...]:
    """Call one of the functions of `torch.distributed` that send Python objects.

    Args:
        collective: the name of the function.
        group: the name of the process group.
        sent: the objects that this rank sends.
        received: how many it receives.
        peer: the rank in the group that sends to the others, or that the others send to; None if there is none.
        device: as the function takes it.

    Returns:
        The received objects.

    Raises:
        DataDependentError: a rank sent None, which the program may have compared with.
    """
    function = getattr(torch.distributed, collective)
    given: dict[str, Any] = {"group": process_group_named(group)}
    objects: list[Any] = [None] * received
    with torch.no_grad():
        match collective:
            case "all_gather_object":
                function(objects, *sent, **given)
            case "gather_object":
                function(*sent, objects or None, group_dst=peer, **given)
            case "scatter_object_list":
                function(objects, sent or None, group_src=peer, **given)
            case "broadcast_object_list":
                function(objects or sent, group_src=peer, device=device, **given)
            case "send_object_list":
                function(sent, group_dst=peer, device=device, **given)
            case _:
                function(objects, group_src=peer, device=device, **given)
    if any(each is None for each in objects):
        raise DataDependentError(
            f"{collective} received None, and a compiled program assumes that received objects are not None",
            advice=("send another value", "call it outside of the compiled function"),
        )
    return tuple(objects)


START: Final = Symbol("thunder_plugin_distributed.recording.operations.start", start)
START_TOGETHER: Final = Symbol("thunder_plugin_distributed.recording.operations.start_together", start_together)
WAIT: Final = Symbol("thunder_plugin_distributed.recording.operations.wait", wait)
RECEIVE: Final = Symbol("thunder_plugin_distributed.recording.operations.receive", receive)
EXCHANGE_OBJECTS: Final = Symbol("thunder_plugin_distributed.recording.operations.exchange_objects", exchange_objects)

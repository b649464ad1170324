"""Communication between processes as lines of a trace: one starts it, and one waits for it.

Each works on buffers that no other line sees, so that passes need not know of memory that is written meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import map_leaves


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

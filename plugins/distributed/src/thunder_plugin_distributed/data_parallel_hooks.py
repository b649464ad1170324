"""Communication hooks of DistributedDataParallel, and their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.nn.parallel import DistributedDataParallel

from thunder_core.ir.symbol import Symbol, Tag
from thunder_plugin_distributed.data_parallel_parameters import averaged


class Bucket:
    """The argument of communication hooks, with the methods of `torch.distributed.GradBucket`."""

    def __init__(self, index: int, is_last: bool, buffer: torch.Tensor, items: Sequence[Any]) -> None:
        self._index, self._is_last, self._buffer, self._items = index, is_last, buffer, items

    def index(self) -> int:
        """The number of the bucket, in the order in which they are reduced."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last one of this backward."""
        return self._is_last

    def buffer(self) -> torch.Tensor:
        """The gradients as one tensor of one dimension."""
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        """Replace the buffer."""
        self._buffer = buffer

    def parameters(self) -> list[torch.Tensor]:
        """The parameters whose gradients are in it, in order."""
        return [item.parameter for item in self._items]

    def gradients(self) -> list[torch.Tensor]:
        """Views of the buffer, one for each parameter."""
        views, offset = [], 0
        for item in self._items:
            views.append(self._buffer.as_strided(item.parameter.shape, item.stride, offset))
            offset += item.parameter.numel()
        return views


def call_hook(
    module: DistributedDataParallel, places: tuple[int, ...], flat: torch.Tensor, index: int, is_last: bool
) -> Any:
    """Call the communication hook of the module with a bucket; return its result, a future."""
    items = [averaged(module)[place] for place in places]
    ((hook, state),) = module._comm_hooks
    return hook(state, Bucket(index, is_last, flat, items))


def hook_result(future: Any) -> torch.Tensor:
    """Wait for the future that a communication hook returned; return its value."""
    value = future.wait()
    reduced: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
    return reduced


def symbol_of(function: Callable[..., Any], *tags: Tag) -> Symbol:
    """A symbol for a function of this package that ops of backward call."""
    return Symbol(f"{function.__module__}.{function.__name__}", function, tags=frozenset(tags))


CALL_HOOK: Final = symbol_of(call_hook, Tag.COLLECTIVE)
HOOK_RESULT: Final = symbol_of(hook_result, Tag.WAIT)

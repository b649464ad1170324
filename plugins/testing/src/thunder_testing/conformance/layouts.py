"""The same arguments in other memory layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from thunder_testing.conformance.call import Call


def layouts(calls: Iterable[Call]) -> Iterator[Call]:
    """The calls with non-contiguous tensors, in each way in which that changes any of them, each layout once."""
    known: set[Any] = set()
    for call in calls:
        plain = call.map_tensors(_dense)
        for what, way in _WAYS.items():
            made = plain.map_tensors(way, what)
            key = [_layout(tensor) for tensor in made.tensors()]
            if key != [_layout(tensor) for tensor in plain.tensors()] and str(key) not in known:
                known.add(str(key))
                yield made


def is_expanded(call: Call) -> bool:
    """Whether elements of a tensor are one in memory."""
    return any(stride == 0 and n > 1 for t in call.tensors() for n, stride in zip(t.shape, t.stride()))


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous() if tensor.layout is torch.strided else tensor


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.ndim < 2:
        return tensor
    order = tuple(range(tensor.ndim))[::-1]
    return tensor.permute(order).contiguous().permute(order)


def _sliced(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor
    if not tensor.ndim:
        return torch.stack([tensor, tensor])[1]
    larger = tensor.new_zeros(*tensor.shape[:-1], 2 * tensor.shape[-1] + 3)
    view = larger[..., 2 : 2 + 2 * tensor.shape[-1] : 2]
    return view.copy_(tensor)


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor
    for dimension in range(tensor.ndim):
        if tensor.shape[dimension] > 1:
            return tensor.narrow(dimension, 0, 1).clone().expand(tensor.shape)
    return tensor


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided or tensor.ndim != 4:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)


_WAYS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "transposed": _transposed,
    "sliced from a larger tensor": _sliced,
    "expanded": _expanded,
    "channels last": _channels_last,
}


def _layout(tensor: torch.Tensor) -> Any:
    placed = (tensor.stride(), tensor.storage_offset()) if tensor.layout is torch.strided else None
    return tuple(tensor.shape), tensor.dtype, placed

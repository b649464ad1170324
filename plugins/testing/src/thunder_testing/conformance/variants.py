"""Variants of a call: with other shapes, dimensions, values and layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from thunder_core.ir.tree import map_leaves
from thunder_testing.conformance.call import Call

_MANY: Final = 1031
"""More elements than a block of most kernels, and a prime number."""


def shapes(calls: Iterable[Call], accepts: Callable[[Call], bool]) -> Iterator[Call]:
    """The variants with other shapes that ``accepts`` allows, without duplicates.

    They are empty, of size 1, without dimensions, with more dimensions, larger, and broadcast.
    """
    calls = list(calls)
    known = {_signature(call) for call in calls}
    for call in calls:
        for variant in _candidates(call):
            if _signature(variant) not in known and accepts(variant):
                known.add(_signature(variant))
                yield variant


def _candidates(call: Call) -> Iterator[Call]:
    tensors = call.tensors()
    if not tensors or any(tensor.layout is not torch.strided for tensor in tensors):
        return
    first = tensors[0]
    for dimension in dict.fromkeys((0, first.ndim - 1)) if first.ndim else ():
        for length, name in ((0, "empty"), (1, "of size 1")):
            what = f"{name} in dimension {dimension}"
            size = first.shape[dimension]
            yield call.map_tensors(lambda t, d=dimension, n=length, s=size: _cut(t, d, n, s), what)  # type: ignore[misc]
            yield call.with_tensors([_cut(first, dimension, length, size), *tensors[1:]], f"first argument {what}")
        if first.numel():
            times = _MANY // first.numel() + 1
            what = f"repeated {times} times in dimension {dimension}"
            yield call.map_tensors(lambda t, d=dimension, n=times, s=size: _repeated(t, d, n, s), what)  # type: ignore[misc]
    yield call.map_tensors(lambda tensor: tensor.reshape(-1)[:1].reshape(()) if tensor.numel() else tensor, "0-d")
    for index in range(min(len(tensors), 3)) if len(tensors) > 1 else ():
        for what, reduce in _SMALLER.items():
            others = [reduce(tensor) if place == index else tensor for place, tensor in enumerate(tensors)]
            yield call.with_tensors(others, f"tensor {index} broadcast from {what}")


def as_matrices(call: Call) -> Call:
    """The call with matrices instead of vectors whose length can be divided."""
    return call.map_tensors(_as_matrix, "as matrices")


def with_negative_dimensions(call: Call) -> Call:
    """The call with numbers that may be dimensions counted from the last one: 1 becomes -1 for a matrix."""
    dimensions = max([tensor.ndim for tensor in call.tensors()[:1]], default=0)

    def counted(leaf: Any) -> Any:
        return leaf - dimensions if type(leaf) is int and 0 <= leaf < dimensions else leaf

    what = f"{call.what}, dimensions counted from the last"
    return Call(what, call.function, map_leaves(counted, call.args), map_leaves(counted, call.kwargs))


def with_other_values(call: Call) -> Call:
    """The call with the elements of each tensor in reverse order, in the same layout."""

    def other(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.layout is not torch.strided or not tensor.numel() or 0 in tensor.stride():
            return tensor
        variant = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        return variant.copy_(tensor.flip(tuple(range(tensor.ndim))))

    return call.map_tensors(other, "other values")


def _as_matrix(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.ndim != 1:
        return tensor
    factor = next((factor for factor in (4, 3, 2, 5) if tensor.numel() % factor == 0), 1)
    return tensor.reshape(factor, -1) if tensor.numel() else tensor


def _cut(tensor: torch.Tensor, dimension: int, length: int, size: int) -> torch.Tensor:
    """The tensor narrowed to ``length`` if it has ``size`` elements in that dimension."""
    if tensor.ndim <= dimension or tensor.shape[dimension] != size or size < length:
        return tensor
    return tensor.narrow(dimension, 0, length).clone()


def _repeated(tensor: torch.Tensor, dimension: int, times: int, size: int) -> torch.Tensor:
    if tensor.ndim <= dimension or tensor.shape[dimension] != size:
        return tensor
    return torch.cat([tensor] * times, dimension)


_SMALLER: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "a first dimension of size 1": lambda tensor: tensor[:1].clone() if tensor.ndim else tensor,
    "a last dimension of size 1": lambda tensor: tensor[..., :1].clone() if tensor.ndim else tensor,
    "one dimension less": lambda tensor: tensor[0].clone() if tensor.ndim and tensor.shape[0] else tensor,
}


def _signature(call: Call) -> Any:
    return tuple([(tensor.shape, tensor.dtype) for tensor in call.tensors()])


def layouts(calls: Iterable[Call]) -> Iterator[Call]:
    """The variants with non-contiguous tensors, without duplicates."""
    known: set[Any] = set()
    for call in calls:
        plain = call.map_tensors(_dense)
        for what, way in _WAYS.items():
            variant = plain.map_tensors(way, what)
            key = [_layout(tensor) for tensor in variant.tensors()]
            if key != [_layout(tensor) for tensor in plain.tensors()] and str(key) not in known:
                known.add(str(key))
                yield variant


def is_expanded(call: Call) -> bool:
    """Whether several elements of a tensor share memory."""
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
    geometry = (tensor.stride(), tensor.storage_offset()) if tensor.layout is torch.strided else None
    return tuple(tensor.shape), tensor.dtype, geometry

"""Selecting and looking up."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule

_aten = torch.ops.aten


@rule("getitem")
def getitem(input: Tensor, index: Any) -> Result:
    """For numbers and slices without steps: zeros around the cotangent."""
    items = index if isinstance(index, tuple) else (index,)
    if not all(item is None or item is ... or type(item) in (int, slice) for item in items):
        return NotImplemented
    if any(isinstance(item, slice) and item.step not in (None, 1) for item in items):
        return NotImplemented
    bounds = [bound for item in items if isinstance(item, slice) for bound in (item.start, item.stop)]
    if any(isinstance(size, torch.SymInt) for size in (*input.shape, *bounds)):  # Python's ranges count the places
        return NotImplemented
    output = input[index]
    kept, starts = _selected(input, items)
    return output, lambda g: _pad(g if list(g.shape) == kept else torch.reshape(g, kept), starts, input)


@rule("torch.narrow")
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Result:
    """Zeros around the cotangent."""
    if isinstance(start, Tensor):
        return NotImplemented
    starts = [0] * input.dim()
    starts[dim] = start % input.shape[dim] if start < 0 else start
    return torch.narrow(input, dim, start, length), lambda g: _pad(g, starts, input)


@rule("torch.select")
def select(input: Tensor, dim: int, index: int) -> Result:
    """One kernel."""
    output = torch.select(input, dim, index)
    return output, lambda g: _aten.select_backward.default(g, input.shape, dim, index)


@rule("F.embedding")
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Result:
    """One kernel; not for weights that are normalized in place, nor for sparse gradients."""
    if max_norm is not None or sparse:
        return NotImplemented
    rows = weight.shape[0]
    padding = -1 if padding_idx is None else padding_idx % rows
    output = torch.nn.functional.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq)

    def backward(g: Tensor) -> Any:
        return None, _aten.embedding_dense_backward.default(g, input, rows, padding, scale_grad_by_freq)

    return output, backward


def _selected(input: Tensor, items: tuple[Any, ...]) -> tuple[list[int], list[int]]:
    """Of each dimension of ``input`` how many places a basic index takes, and from which on."""
    given = len(items) - sum(item is None or item is ... for item in items)
    kept, starts = list(input.shape), [0] * input.dim()
    dim = 0
    for item in items:
        if item is ...:
            dim += input.dim() - given
        elif item is not None:
            size = input.shape[dim]
            places = range(size)[item] if isinstance(item, slice) else range(item % size, item % size + 1)
            kept[dim], starts[dim] = len(places), places.start
            dim += 1
    return kept, starts


def _pad(g: Tensor, starts: list[int], input: Tensor) -> Tensor:
    """``g`` from ``starts`` on in zeros of the shape of ``input``."""
    widths: list[int] = []
    for start, length, size in zip(starts, g.shape, input.shape, strict=True):
        widths = [start, size - start - length, *widths]
    while widths and widths[-2:] == [0, 0]:
        del widths[-2:]
    return torch.nn.functional.pad(g, tuple(widths)) if widths else g

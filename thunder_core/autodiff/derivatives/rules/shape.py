"""Joining, splitting and slicing: one op for all parts or dimensions, where autograd's formulas have one for each.

Other views and rearrangements have no rules, since autograd derives their inverses.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.derivatives.rules import Result, rule


@rule("torch.cat")
def cat(tensors: tuple[Tensor, ...], dim: int = 0) -> Result:
    """``cat_tensors_backward``, as one split if all gradients are needed."""
    if len({tensor.dim() for tensor in tensors}) != 1:  # `cat` ignores empty vectors
        return NotImplemented
    sizes = [tensor.shape[dim] for tensor in tensors]

    def backward(g: Tensor) -> Any:
        if all(tensor.requires_grad for tensor in tensors):
            return [list(torch.split(g, sizes, dim))]
        return [[torch.narrow(g, dim, end - size, size) for end, size in zip(accumulate(sizes), sizes)]]

    return torch.cat(tensors, dim), backward


@rule("torch.stack")
def stack(tensors: tuple[Tensor, ...], dim: int = 0) -> Result:
    """``stack_tensors_backward``, as one call."""
    return torch.stack(tensors, dim), lambda g: [list(torch.unbind(g, dim))]


@rule("torch.tensor_split")
def tensor_split(input: Tensor, sections: Any, dim: int = 0) -> Result:
    """One concatenation, with zeros for absent cotangents, where autograd adds padded slices."""
    parts = torch.tensor_split(input, sections, dim)

    def backward(*cotangents: Tensor | None) -> Tensor:
        pairs = zip(parts, cotangents, strict=True)
        return torch.cat([torch.zeros_like(part) if g is None else g for part, g in pairs], dim)

    return parts, backward


@rule("getitem")
def getitem(input: Tensor, index: Any) -> Result:
    """For numbers and slices without steps: the cotangent padded with zeros in all dimensions at once."""
    items = index if isinstance(index, tuple) else (index,)
    if not all(item is None or item is ... or type(item) in (int, slice) for item in items):
        return NotImplemented
    if any(isinstance(item, slice) and item.step not in (None, 1) for item in items):
        return NotImplemented
    bounds = [bound for item in items if isinstance(item, slice) for bound in (item.start, item.stop)]
    if any(isinstance(size, torch.SymInt) for size in (*input.shape, *bounds)):  # `range` needs integers
        return NotImplemented
    sizes, starts = _selected(input, items)
    return input[index], lambda g: _padded(g if list(g.shape) == sizes else torch.reshape(g, sizes), starts, input)


def _selected(input: Tensor, items: tuple[Any, ...]) -> tuple[list[int], list[int]]:
    """For each dimension of ``input``, the number of elements that a basic index selects, and the first of them."""
    given = len(items) - sum(item is None or item is ... for item in items)
    sizes, starts = list(input.shape), [0] * input.dim()
    dim = 0
    for item in items:
        if item is ...:
            dim += input.dim() - given
        elif item is not None:
            size = input.shape[dim]
            selected = range(size)[item] if isinstance(item, slice) else range(item % size, item % size + 1)
            sizes[dim], starts[dim] = len(selected), selected.start
            dim += 1
    return sizes, starts


def _padded(g: Tensor, starts: list[int], input: Tensor) -> Tensor:
    """Zeros of the shape of ``input`` with ``g`` at ``starts``."""
    widths: list[int] = []
    for start, length, size in zip(starts, g.shape, input.shape, strict=True):
        widths = [start, size - start - length, *widths]
    while widths and widths[-2:] == [0, 0]:
        del widths[-2:]
    return torch.nn.functional.pad(g, tuple(widths)) if widths else g

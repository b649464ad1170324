"""Views, rearrangements, joining and splitting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from thunder_core.autodiff.rules.rule import Result, rule
from thunder_core.symbols.naming import existing_function

_RESHAPES = """
    torch.reshape torch.flatten torch.unflatten torch.ravel torch.squeeze torch.unsqueeze
    torch.Tensor.view torch.Tensor.view_as torch.Tensor.reshape_as
"""
_EXPANSIONS = "torch.Tensor.expand torch.Tensor.expand_as torch.broadcast_to"
_TRANSPOSITIONS = "torch.t torch.Tensor.T torch.Tensor.mT"
_SPLITS = "torch.split torch.split_with_sizes torch.chunk torch.tensor_split"


def _add_reshape(name: str) -> None:
    function = existing_function(name)
    assert function is not None

    @rule(name)
    def reshape(input: Tensor, *sizes: Any, **options: Any) -> Result:
        """The same elements in the shape of the argument."""
        output = function(input, *sizes, **options)
        if output.dtype != input.dtype:  # a view of the bits
            return NotImplemented
        return output, lambda g: torch.reshape(g, input.shape)


def _add_expansion(name: str) -> None:
    function = existing_function(name)
    assert function is not None

    @rule(name)
    def expand(input: Tensor, *sizes: Any, **options: Any) -> Result:
        """What broadcasting does, undone by `fit`."""
        return function(input, *sizes, **options), lambda g: g


def _add_transposition(name: str) -> None:
    function = existing_function(name)
    assert function is not None

    @rule(name)
    def transpose(input: Tensor) -> Result:
        """Its own inverse."""
        return function(input), lambda g: function(g)


def _add_split(name: str) -> None:
    function = existing_function(name)
    assert function is not None

    @rule(name)
    def split(input: Tensor, sizes: Any, dim: int = 0) -> Result:
        """The parts side by side; zeros for those that nothing flows to."""
        parts = function(input, sizes, dim)
        return parts, lambda *cotangents: torch.cat(_complete(parts, cotangents), dim)


for _name in _RESHAPES.split():
    _add_reshape(_name)
for _name in _EXPANSIONS.split():
    _add_expansion(_name)
for _name in _TRANSPOSITIONS.split():
    _add_transposition(_name)
for _name in _SPLITS.split():
    _add_split(_name)


@rule("torch.transpose")
def transpose(input: Tensor, dim0: int, dim1: int) -> Result:
    """Its own inverse."""
    return torch.transpose(input, dim0, dim1), lambda g: torch.transpose(g, dim0, dim1)


@rule("torch.permute")
def permute(input: Tensor, dims: tuple[int, ...]) -> Result:
    """``permute_backwards``."""
    places = [dim % input.dim() for dim in dims]
    inverse = tuple(sorted(range(len(places)), key=places.__getitem__))
    return torch.permute(input, dims), lambda g: torch.permute(g, inverse)


@rule("torch.cat")
def cat(tensors: tuple[Tensor, ...], dim: int = 0) -> Result:
    """``cat_tensors_backward``: all parts by one call where all are wanted."""
    if len({tensor.dim() for tensor in tensors}) != 1:  # empty vectors that count for nothing
        return NotImplemented
    sizes = [tensor.shape[dim] for tensor in tensors]

    def backward(g: Tensor) -> Any:
        if all(tensor.requires_grad for tensor in tensors):
            return [list(torch.split(g, sizes, dim))]
        return [[torch.narrow(g, dim, end - size, size) for end, size in zip(accumulate(sizes), sizes)]]

    return torch.cat(tensors, dim), backward


@rule("torch.stack")
def stack(tensors: tuple[Tensor, ...], dim: int = 0) -> Result:
    """``stack_tensors_backward``."""
    return torch.stack(tensors, dim), lambda g: [list(torch.unbind(g, dim))]


@rule("torch.unbind")
def unbind(input: Tensor, dim: int = 0) -> Result:
    """``unbind_backward``."""
    parts = torch.unbind(input, dim)
    return parts, lambda *cotangents: torch.stack(_complete(parts, cotangents), dim)


def _complete(parts: Sequence[Tensor], cotangents: Sequence[Tensor | None]) -> list[Tensor]:
    """The cotangents, with zeros for missing ones."""
    return [torch.zeros_like(part) if g is None else g for part, g in zip(parts, cotangents, strict=True)]

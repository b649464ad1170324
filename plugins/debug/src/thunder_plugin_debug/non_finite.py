"""Look for NaNs and infinities in tensors. Each question waits for the device, if the tensor is on one."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.ir.tree import iterate_leaves


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the two kinds of values that are not finite.

    Attributes:
        name: in messages.
        of_tensor: which elements of a tensor are such.
        of_number: whether a number is.
    """

    name: str
    of_tensor: Callable[[torch.Tensor], torch.Tensor]
    of_number: Callable[[complex], bool]

    def occurs(self, tensor: torch.Tensor) -> bool:
        """Whether an element of a tensor is such."""
        return bool(self.of_tensor(_elements(tensor)).any())

    def count(self, tensor: torch.Tensor) -> int:
        """How many elements of a tensor are such."""
        return int(self.of_tensor(_elements(tensor)).sum())

    def among_literals(self, arguments: Any) -> bool:
        """Whether the program writes one itself, as ``masked_fill(mask, float("-inf"))`` does."""
        return any(isinstance(leaf, float | complex) and self.of_number(leaf) for leaf in iterate_leaves(arguments))


NAN: Final = Kind("NaN", torch.isnan, cmath.isnan)
INFINITY: Final = Kind("infinity", torch.isinf, cmath.isinf)


def can_be_non_finite(tensor: torch.Tensor) -> bool:
    """Whether the dtype has NaNs."""
    return tensor.is_floating_point() or tensor.is_complex()


def describe_range(name: str, tensor: torch.Tensor) -> str:
    """``t0: float32 (2, 3), from -1.5 to 2, 1 NaN``; of complex numbers the absolute values."""
    text = f"{name}: {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    if not can_be_non_finite(tensor):
        return text
    elements = _elements(tensor)
    finite = elements[torch.isfinite(elements)]
    finite = finite.abs() if finite.is_complex() else finite
    if finite.numel():
        text += f", from {float(finite.min()):.6g} to {float(finite.max()):.6g}"
    for kind in (NAN, INFINITY):
        count = kind.count(tensor)
        text += f", {count} {kind.name}" if count else ""
    return text


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """What is stored of a sparse tensor, and formats of eight bits as wider ones, of which PyTorch can tell."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce().values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.values()
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor

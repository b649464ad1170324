"""Detection of NaNs and infinities in tensors. Each function synchronizes with the tensor's device."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.ir.tree import iterate_leaves


@dataclass(frozen=True, slots=True)
class Kind:
    """NaN or infinity.

    Attributes:
        name: its name in messages.
        of_tensor: from a tensor to a mask of its elements of this kind.
        of_number: whether a number is of this kind.
    """

    name: str
    of_tensor: Callable[[torch.Tensor], torch.Tensor]
    of_number: Callable[[complex], bool]

    def occurs(self, tensor: torch.Tensor) -> bool:
        """Whether an element of a tensor is of this kind."""
        return bool(self.of_tensor(_elements(tensor)).any())

    def count(self, tensor: torch.Tensor) -> int:
        """The number of elements of this kind."""
        return int(self.of_tensor(_elements(tensor)).sum())

    def among_literals(self, arguments: Any) -> bool:
        """Whether a literal of the program is of this kind, as in ``masked_fill(mask, float("-inf"))``."""
        return any(isinstance(leaf, float | complex) and self.of_number(leaf) for leaf in iterate_leaves(arguments))


NAN: Final = Kind("NaN", torch.isnan, cmath.isnan)
INFINITY: Final = Kind("infinity", torch.isinf, cmath.isinf)


def can_be_non_finite(tensor: torch.Tensor) -> bool:
    """Whether the dtype represents NaN."""
    return tensor.is_floating_point() or tensor.is_complex()


def describe_range(name: str, tensor: torch.Tensor) -> str:
    """``t0: float32 (2, 3), from -1.5 to 2, 1 NaN``; for complex numbers the absolute values."""
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
    """The stored values of a sparse tensor, and eight-bit formats in a wider dtype that PyTorch's functions support."""
    tensor = tensor.detach()
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce().values()
    elif tensor.layout is not torch.strided:
        tensor = tensor.values()
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor

"""The operations of a program whose backward is a part of it. They run in PyTorch as they are, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder_core.ir.symbol import Symbol
from thunder_core.passes.operations import restride


class GradientSlots:
    """Tensors whose ``grad`` a program assigns when it ends: the objects, which later writes do not replace."""

    __slots__ = ("tensors",)

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self.tensors = tuple(tensors)


def gradient_slots(tensors: Sequence[torch.Tensor]) -> GradientSlots:
    """The slots of these tensors, which must be leaves of the autograd graph."""
    return GradientSlots(tensors)


def store_gradients(slots: GradientSlots, gradients: Sequence[torch.Tensor | None], cleared: Sequence[bool]) -> None:
    """Assign ``grad`` of the tensors of ``slots``.

    Args:
        gradients: one for each tensor; where it is None, ``grad`` is only assigned if ``cleared`` is true.
        cleared: for each tensor, whether the program sets ``grad`` to None before it computes a gradient.
    """
    for tensor, gradient, clear in zip(slots.tensors, gradients, cleared, strict=True):
        if gradient is not None or clear:
            tensor.grad = gradient


def gradients(
    output: torch.Tensor, inputs: Sequence[torch.Tensor], cotangent: torch.Tensor | None = None
) -> list[torch.Tensor | None]:
    """The gradients that ``output.backward(cotangent)`` adds to ``grad`` of the inputs; None where none flows.

    Each is a new tensor. It has the strides of its input if that is dense and does not overlap itself, as PyTorch's
    gradients of leaves have (`torch.Tensor.grad`), else it is contiguous.
    """
    found = torch.autograd.grad(output, list(inputs), cotangent, allow_unused=True)
    return [None if one is None else gradient_like(one, layout_of(x)) for one, x in zip(found, inputs, strict=True)]


def gradient_like(gradient: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """A copy of a gradient with these strides."""
    gradient = gradient.detach()
    copy = restride(gradient, stride) if gradient.stride() != stride else gradient
    return copy.clone() if copy.untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr() else copy


def layout_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides of the gradient that PyTorch's autograd stores for a leaf (``accumulate_grad.h``)."""
    empty = torch.empty_like(tensor, device="meta", memory_format=torch.preserve_format)
    dense = empty.stride() == tensor.stride()
    return tuple(tensor.stride()) if dense else tuple(torch.empty(tensor.shape, device="meta").stride())


def ones(tensor: torch.Tensor) -> torch.Tensor:
    """The cotangent of a tensor from which backward starts: contiguous ones."""
    return torch.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def after(tensors: Sequence[torch.Tensor], cotangent: torch.Tensor) -> list[torch.Tensor]:
    """The tensors themselves. What uses the result runs after what computes ``cotangent``."""
    return list(tensors)


def freed(tensor: torch.Tensor) -> torch.Tensor:
    """A result of the program whose graph its backward has freed, as eager PyTorch returns it."""
    with torch.enable_grad():
        anchor = torch.empty(0, requires_grad=True)
        result: torch.Tensor = _Freed.apply(anchor, tensor.detach())
        return result


class _Freed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        raise RuntimeError(_FREED_TWICE)


_FREED_TWICE: Final = (
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been "
    "freed). Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
    "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors "
    "after calling backward."
)
"""PyTorch's message, which programs may compare."""
GRADIENT_SLOTS: Final = Symbol("thunder_plugin_training.operations.gradient_slots", gradient_slots)
STORE_GRADIENTS: Final = Symbol("thunder_plugin_training.operations.store_gradients", store_gradients)
GRADIENTS: Final = Symbol("thunder_plugin_training.operations.gradients", gradients)
GRADIENT_LIKE: Final = Symbol("thunder_plugin_training.operations.gradient_like", gradient_like)
ONES: Final = Symbol("thunder_plugin_training.operations.ones", ones, decomposition=ones)
AFTER: Final = Symbol("thunder_plugin_training.operations.after", after)
FREED: Final = Symbol("thunder_plugin_training.operations.freed", freed)

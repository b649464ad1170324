"""Gradients of a PyTorch function by PyTorch's autograd, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.tree import iterate_leaves, map_leaves

_RECORDING: Final = Context(grad_enabled=True, inference=False)  # autocast is off: its conversions are lines


def reference_gradients(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cotangents: Sequence[torch.Tensor | None],
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """What the backward of a `thunder_core.executors.DerivativePair` for this call should return.

    Args:
        cotangents: for each tensor that the function returns; None where it has none.
        wanted: for each tensor among the arguments, repeated ones repeated, whether its gradient is.

    Returns:
        For each of these the gradient, zeros if there is none; None where it is not wanted.
    """
    asked = iter(wanted)
    given: list[torch.Tensor] = []

    def own(leaf: Any) -> Any:
        """Each argument by itself: one tensor in two places has a gradient for each."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        given.append(leaf.detach().requires_grad_(next(asked)))
        return given[-1]

    with modes_for_fakes(_RECORDING):
        args, kwargs = map_leaves(own, (args, kwargs))
        result = function(*args, **kwargs)
        made = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        pairs = [
            (output, cotangent)
            for output, cotangent in zip(made, cotangents, strict=True)
            if cotangent is not None and output.requires_grad
        ]
        sources = [tensor for tensor in given if tensor.requires_grad]
        if pairs and sources:
            outputs, flowing = zip(*pairs, strict=True)
            found = iter(torch.autograd.grad(outputs, sources, flowing, allow_unused=True, materialize_grads=True))
        else:
            found = iter([torch.zeros_like(tensor) for tensor in sources])
    return tuple([next(found) if tensor.requires_grad else None for tensor in given])

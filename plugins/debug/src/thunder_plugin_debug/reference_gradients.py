"""Gradients of a PyTorch function by PyTorch's autograd, for comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from thunder_core.ir.context import Context, modes_for_fakes
from thunder_core.ir.tree import map_leaves, tensors_in

# autocast is off, because its casts are operations of the trace
_RECORDING: Final = Context(grad_enabled=True, inference=False)


def reference_gradients(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cotangents: Sequence[torch.Tensor | None],
    wanted: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """The expected result of the backward of a `thunder_core.executors.DerivativePair` for this call.

    Args:
        function, args, kwargs: the call.
        cotangents: for each tensor that the function returns, its cotangent or None.
        wanted: for each tensor among the arguments, with repetitions, whether its gradient is needed.

    Returns:
        For each of these the gradient, zeros if autograd returns none; None if it is not needed.
    """
    flags = iter(wanted)
    given: list[torch.Tensor] = []

    def separate(leaf: Any) -> Any:
        """A separate leaf for each argument: a tensor that is passed twice has a gradient for each position."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        given.append(leaf.detach().requires_grad_(next(flags)))
        return given[-1]

    with modes_for_fakes(_RECORDING):
        args, kwargs = map_leaves(separate, (args, kwargs))
        result = function(*args, **kwargs)
        tensors = tensors_in(result)
        pairs = [
            (output, cotangent)
            for output, cotangent in zip(tensors, cotangents, strict=True)
            if cotangent is not None and output.requires_grad
        ]
        sources = [tensor for tensor in given if tensor.requires_grad]
        if pairs and sources:
            outputs, flowing = zip(*pairs, strict=True)
            gradients = iter(torch.autograd.grad(outputs, sources, flowing, allow_unused=True, materialize_grads=True))
        else:
            gradients = iter([torch.zeros_like(tensor) for tensor in sources])
    return tuple([next(gradients) if tensor.requires_grad else None for tensor in given])

"""A derivative that an executor gives: a forward with residuals, and a backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DerivativePair:
    """How an executor differentiates a line: two calls, which stand in the trace as they are.

    Neither may write to its arguments. Functions at the top level of a module are printed by their names; for others
    the trace is no program that can be saved.

    Attributes:
        forward: takes the line's arguments and returns ``(outputs, residuals)``: what the line returns, with the same
            shapes, strides, dtypes and devices, in new memory; and a tuple of whatever ``backward`` needs. Arguments
            and outputs that are among the residuals cost nothing to return. Numbers, strings and None among them must
            depend on metadata alone.
        backward: takes ``(residuals, cotangents, wanted)`` and returns a tuple of gradients. ``cotangents`` has an item
            for each tensor in ``outputs``: its gradient, with any strides, or None if it never gets one. ``wanted`` has
            a bool for each tensor among the line's arguments, in their order; so has the result a tensor for each that
            is True, with the shape and dtype of the argument, and None for the others. Backward runs again when the
            user retains the graph.
        fake: called like ``forward`` with fake tensors; gives tensors of the right metadata without computing. None:
            ``forward`` and ``backward`` themselves work on fake tensors, as calls of PyTorch and of custom operators
            with a fake implementation do. With ``fake``, gradients must have the strides of `torch.empty_like` of their
            arguments.
        pure: False if ``forward`` does more than to compute its results, like updating a state: it then runs once for
            each call of the program, and in order. Otherwise it may run again for backward where the partition finds
            that worthwhile, or a checkpoint requires it.
    """

    forward: Callable[..., tuple[Any, tuple[Any, ...]]]
    backward: Callable[..., tuple[Any, ...]]
    fake: Callable[..., tuple[Any, tuple[Any, ...]]] | None = None
    pure: bool = True

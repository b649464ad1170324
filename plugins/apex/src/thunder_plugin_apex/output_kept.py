"""Normalizations that keep their result for backward instead of their argument (``memory_efficient`` of Apex)."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def output_kept(output: Tensor, residuals: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
    """What a forward returned, with the result in place of the argument, and without means.

    Args:
        output: the result.
        residuals: argument, mean of each row or None, inverse root of the variance, ..., False.
    """
    _, _, invvar, *others, _ = residuals
    return output, (output, None, invvar, *others, True)

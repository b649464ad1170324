"""Parts of attention in language models."""

from __future__ import annotations

import torch


def rotary_embedding(input: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al. 2021): ``input * cos + (-x2, x1) * sin``, cast to the input's dtype.

    ``x1`` and ``x2`` are the halves of the last dimension, as in GPT-NeoX and Llama.

    Args:
        input: floating point, ``[..., K]`` with an even ``K``: all queries, or all keys.
        cos, sin: floating point, with shapes that are broadcastable to that of ``input``. The computation is in the
            dtype of PyTorch's promotion.

    Returns:
        A tensor with the shape and dtype of ``input``.
    """
    half = input.shape[-1] // 2
    rotated = torch.cat((-input[..., half:], input[..., :half]), dim=-1)
    return (input * cos + rotated * sin).to(input.dtype)


def scaled_softmax(
    input: torch.Tensor, scale: float, mask: torch.Tensor | None = None, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """``softmax(input * scale + mask)`` over the last dimension: the weights of attention from its scores.

    Args:
        input: floating point, ``[..., K]``.
        scale: a number.
        mask: added to the scaled input, with a shape that is broadcastable to ``[..., K]``; minus infinity masks.
        dtype: the dtype of the computation and of the result; None for that of its argument.

    Returns:
        ``[..., K]``.
    """
    scores = input if scale == 1 else input * scale
    return torch.softmax(scores if mask is None else scores + mask, -1, dtype)

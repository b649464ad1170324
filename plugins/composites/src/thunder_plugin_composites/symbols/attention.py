"""What attention consists of, as language models spell it out."""

from __future__ import annotations

import torch


def rotary_embedding(input: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al. 2021): ``input * cos + (-x2, x1) * sin``, converted to the input's dtype.

    ``x1`` and ``x2`` are the halves of the last dimension, as GPT-NeoX, Llama and those after them have it.

    Args:
        input: floating point, ``[..., K]`` with an even ``K``: all queries, or all keys.
        cos, sin: floating point, of shapes that broadcast against that of ``input``. Computed in the dtype that
            PyTorch promotes to.

    Returns:
        The shape and dtype of ``input``.
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
        mask: added to the scaled input, of a shape that broadcasts against ``[..., K]``; minus infinity hides.
        dtype: what the softmax is computed and returned in; None for that of its argument.

    Returns:
        ``[..., K]``.
    """
    scores = input if scale == 1 else input * scale
    return torch.softmax(scores if mask is None else scores + mask, -1, dtype)

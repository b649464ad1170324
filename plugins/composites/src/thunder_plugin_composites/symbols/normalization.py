"""Root mean square normalization in language models."""

from __future__ import annotations

import torch


def rms_norm(
    input: torch.Tensor, weight: torch.Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> torch.Tensor:
    """``n * weight`` with ``n = x / sqrt(mean(x²) + eps)`` over the last dimension (Zhang and Sennrich 2019).

    ``x`` is ``input`` in the dtype `computed_in`, float32 except for float64. `torch.nn.functional.rms_norm` is another
    operation: it multiplies before rounding and has no offset.

    Args:
        input: floating point, ``[..., K]``.
        weight: floating point, ``[K]``.
        eps: added to the mean of squares.
        unit_offset: whether the factor is ``1 + weight`` (Gemma).
        rounded: whether ``n`` is rounded to the dtype of ``input`` before the multiplication (Llama in Hugging Face
            Transformers); otherwise the result is rounded (LitGPT, Gemma).

    Returns:
        ``[..., K]``, in the dtype of ``input``; with ``rounded`` in the dtype of PyTorch's promotion of ``input`` and
        ``weight``.
    """
    wide = computed_in(input.dtype)
    x = input.to(wide)
    n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    if rounded:
        return (1 + weight if unit_offset else weight) * n.to(input.dtype)
    factor = weight.to(computed_in(weight.dtype))
    return (n * (1 + factor if unit_offset else factor)).to(input.dtype)


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which statistics of tensors of ``dtype`` are computed: float64 for float64, float32 for others."""
    return dtype if dtype is torch.float64 else torch.float32

"""Root mean square normalisation, as language models spell it out."""

from __future__ import annotations

import torch


def rms_norm(
    input: torch.Tensor, weight: torch.Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> torch.Tensor:
    """``n * weight`` with ``n = x / sqrt(mean(x²) + eps)`` over the last dimension (Zhang and Sennrich 2019).

    ``x`` is ``input`` in `computed_in`, float32 for all but float64. `torch.nn.functional.rms_norm` is another
    operation: it multiplies before it rounds and has no offset.

    Args:
        input: floating point, ``[..., K]``.
        weight: floating point, ``[K]``.
        eps: added to the mean of squares.
        unit_offset: the factor is ``1 + weight`` (Gemma).
        rounded: ``n`` is rounded to the dtype of ``input`` before it meets the weight (Llama in Hugging Face
            Transformers); otherwise the product is (LitGPT, Gemma).

    Returns:
        ``[..., K]``, in the dtype of ``input``; with ``rounded`` in the one that PyTorch promotes ``input`` and
        ``weight`` to.
    """
    wide = computed_in(input.dtype)
    x = input.to(wide)
    n = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    if rounded:
        return (1 + weight if unit_offset else weight) * n.to(input.dtype)
    factor = weight.to(computed_in(weight.dtype))
    return (n * (1 + factor if unit_offset else factor)).to(input.dtype)


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which statistics of tensors of ``dtype`` are computed: float64 for itself, float32 for others."""
    return dtype if dtype is torch.float64 else torch.float32

"""Linear layer and cross entropy together, chunk of tokens by chunk.

A chunk's logits are a product into a buffer that all chunks share. The kernel makes losses of them and writes their
gradient in their place, for a cotangent of 1, and the gradients of input and weight are products with it. That is three
products of matrices in all, as many as without chunks; computing logits again in backward would be four. Backward
multiplies by the cotangent.

Sums over chunks are rounded once: they are kept in float32, or, with two chunks only, in the dtype of the weight, where
the second product adds to the first in float32 before it rounds.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from thunder_plugin_triton.cross_entropy_reduction import Weights
from thunder_plugin_triton.cross_entropy_rows import losses_of

SMALLEST: Final = 2048
"""Tokens of a chunk: products of fewer rows are slower than the GPU could be."""


class Sums(NamedTuple):
    """What a pass over the chunks gives. None: it was not wanted.

    Attributes:
        losses: float32 ``[N]``.
        of_input: the gradient of the input, ``[N, K]``.
        of_weight: the gradient of the weight, ``[V, K]``, in its dtype or in float32.
        of_bias: the gradient of the bias, ``[V]``, in float32.
    """

    losses: Tensor
    of_input: Tensor | None
    of_weight: Tensor | None
    of_bias: Tensor | None


def chunk_size(tokens: int, width: int, *, accumulates: bool) -> int:
    """How many tokens a chunk has.

    Elements have 2 bytes, say. For each class the buffer then takes ``2 * size``, and, where a weight ``width`` wide
    accumulates, its sum ``2 * width`` with two chunks and ``4 * width`` with more: halves are taken as long as they
    need no more memory.
    """
    if tokens <= SMALLEST:
        return tokens
    half = -(-tokens // 2)
    if accumulates and half <= SMALLEST + width:
        return half
    chunks = -(-tokens // SMALLEST)
    return -(-tokens // chunks)


def columns(classes: int) -> int:
    """Elements from one row of the buffer to the next: kernels read and write pieces of 16 bytes."""
    return -(-classes // 16) * 16


def new_sums(
    input: Tensor, weight: Tensor, bias: Tensor | None, of_input: bool = False, of_weight: bool = False
) -> Sums:
    """Memory for what `pass_over_chunks` gives, with these gradients.

    Args:
        input: ``[N, K]``; weight: ``[V, K]``; bias: ``[V]`` or None.
    """
    tokens, classes = input.shape[0], weight.shape[0]
    size = chunk_size(tokens, weight.shape[1], accumulates=of_weight)
    rounded = weight.dtype is torch.bfloat16 and tokens <= 2 * size
    return Sums(
        input.new_empty(tokens, dtype=torch.float32),
        input.new_empty(input.shape) if of_input else None,
        weight.new_empty(weight.shape, dtype=weight.dtype if rounded else torch.float32) if of_weight else None,
        bias.new_empty(classes, dtype=torch.float32) if of_weight and bias is not None else None,
    )


def pass_over_chunks(
    input: Tensor,
    weight: Tensor,
    target: Tensor,
    bias: Tensor | None,
    weights: Weights,
    ignore_index: int,
    smoothing: float,
    scale: Tensor | None,
    sums: Sums,
) -> None:
    """Write losses, and the gradients of their sum times ``scale``, into ``sums``.

    Args:
        input: ``[N, K]``; weight: ``[V, K]``; target: ``[N]``; bias: ``[V]`` or None.
        scale: float32, a number. None: ``sums`` has no gradients.
    """
    tokens, classes = input.shape[0], weight.shape[0]
    size = chunk_size(tokens, weight.shape[1], accumulates=sums.of_weight is not None)
    buffer = input.new_empty(size, columns(classes))
    for first in range(0, tokens, size):
        rows = slice(first, min(first + size, tokens))
        part, logits = input[rows], buffer[: rows.stop - first, :classes]
        if bias is None:
            torch.mm(part, weight.t(), out=logits)
        else:
            torch.addmm(bias, part, weight.t(), out=logits)
        losses_of(
            logits, target[rows], weights, ignore_index, smoothing,
            scale=scale, columns=buffer.shape[1], into=sums.losses[rows],
        )  # fmt: skip
        if sums.of_input is not None:
            torch.mm(logits, weight, out=sums.of_input[rows])
        if sums.of_weight is not None:
            _add_product(sums.of_weight, logits.t(), part, first=first == 0)
        if sums.of_bias is not None:
            of_bias = logits.sum(0, dtype=torch.float32)
            sums.of_bias.copy_(of_bias if first == 0 else sums.of_bias + of_bias)


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, first: bool) -> None:
    """Make ``total`` the product, or add the product to it. Rounded to the dtype of ``total`` alone."""
    if total.dtype is not left.dtype and total.device.type == "cpu":
        left, right = left.float(), right.float()  # PyTorch has products into a wider dtype for GPUs only
    wide: dict[str, Any] = {} if total.dtype is left.dtype else {"out_dtype": total.dtype}
    if first:
        torch.mm(left, right, **wide, out=total)
    else:
        torch.addmm(total, left, right, **wide, out=total)

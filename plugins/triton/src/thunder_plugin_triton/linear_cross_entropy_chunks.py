"""Linear layer and cross entropy in chunks of tokens.

The logits of a chunk are a matmul into a buffer that all chunks share. The kernel computes their losses and overwrites
them by their gradient for a cotangent of 1. The gradients of input and weight are matmuls with it. These are three
matmuls, as many as without chunks; recomputing logits in backward would need a fourth. Backward multiplies by the
cotangent.

With a number of classes whose rows are not aligned, such as 50,257, the matmuls are of a weight with rows of zeros:
otherwise BLAS uses kernels that load element by element.

Sums over chunks are rounded once: they are accumulated in float32, or, with only two chunks, in the dtype of the
weight, because the second matmul adds to the first in float32 before rounding.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from thunder_plugin_triton.cross_entropy_reduction import Weights
from thunder_plugin_triton.cross_entropy_rows import losses_of

SMALLEST: Final = 2048
"""Tokens of a chunk: matmuls with fewer rows do not use the GPU fully."""


class Sums(NamedTuple):
    """The results of a pass over the chunks. None for those that are not needed.

    Attributes:
        losses: float32 ``[N]``.
        of_input: the gradient of the input, ``[N, K]``.
        of_weight: the gradient of the weight, ``[V, K]``, in its dtype or in float32, and the rows of `padding`.
        of_bias: the gradient of the bias, ``[V]``, in float32.
    """

    losses: Tensor
    of_input: Tensor | None
    of_weight: Tensor | None
    of_bias: Tensor | None


def chunk_size(tokens: int, width: int, *, accumulates: bool) -> int:
    """The number of tokens per chunk.

    With 2 bytes per element, the buffer takes ``2 * size`` bytes per class. The accumulated gradient of a weight with
    ``width`` columns takes ``2 * width`` with two chunks and ``4 * width`` with more. So the chunk is halved as long as
    this does not increase the memory.
    """
    if tokens <= SMALLEST:
        return tokens
    half = -(-tokens // 2)
    if accumulates and half <= SMALLEST + width:
        return half
    chunks = -(-tokens // SMALLEST)
    return -(-tokens // chunks)


def columns(classes: int) -> int:
    """The row stride of the buffer in elements: kernels read and write 16 bytes at a time."""
    return -(-classes // 16) * 16


def padding(classes: int, dtype: torch.dtype) -> int:
    """The rows of zeros after those of a weight, so that the rows of logits have a multiple of 16 bytes."""
    return -classes % (16 // dtype.itemsize)


def new_sums(
    input: Tensor, weight: Tensor, bias: Tensor | None, of_input: bool = False, of_weight: bool = False
) -> Sums:
    """Memory for the results of `pass_over_chunks`, with the given gradients.

    Args:
        input: ``[N, K]``.
        weight: ``[V, K]``.
        bias: ``[V]`` or None.
        of_input, of_weight: whether these gradients are needed.
    """
    tokens, classes = input.shape[0], weight.shape[0]
    size = chunk_size(tokens, weight.shape[1], accumulates=of_weight)
    rounded = weight.dtype is torch.bfloat16 and tokens <= 2 * size
    shape = classes + padding(classes, weight.dtype), weight.shape[1]
    return Sums(
        input.new_empty(tokens, dtype=torch.float32),
        input.new_empty(input.shape) if of_input else None,
        weight.new_empty(shape, dtype=weight.dtype if rounded else torch.float32) if of_weight else None,
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
    """Write losses, and the gradients of their sum times ``scale``, to ``sums``.

    Args:
        input: ``[N, K]``.
        weight: ``[V, K]``.
        target: ``[N]``.
        bias: ``[V]`` or None.
        scale: a float32 scalar. None: ``sums`` has no gradients.
    """
    tokens, classes = input.shape[0], weight.shape[0]
    size = chunk_size(tokens, weight.shape[1], accumulates=sums.of_weight is not None)
    padded = padding(classes, weight.dtype)
    if padded:
        weight = F.pad(weight, (0, 0, 0, padded))
        bias = None if bias is None else F.pad(bias, (0, padded))
    buffer = input.new_empty(size, columns(classes))
    for first in range(0, tokens, size):
        rows = slice(first, min(first + size, tokens))
        # The kernel overwrites the columns behind those of the classes by zeros.
        part, products = input[rows], buffer[: rows.stop - first, : classes + padded]
        logits = products[:, :classes]
        if bias is None:
            torch.mm(part, weight.t(), out=products)
        else:
            torch.addmm(bias, part, weight.t(), out=products)
        losses_of(
            logits, target[rows], weights, ignore_index, smoothing,
            scale=scale, columns=buffer.shape[1], into=sums.losses[rows],
        )  # fmt: skip
        if sums.of_input is not None:
            torch.mm(products, weight, out=sums.of_input[rows])
        if sums.of_weight is not None:
            _add_product(sums.of_weight, products.t(), part, first=first == 0)
        if sums.of_bias is not None:
            of_bias = logits.sum(0, dtype=torch.float32)
            sums.of_bias.copy_(of_bias if first == 0 else sums.of_bias + of_bias)


def _add_product(total: Tensor, left: Tensor, right: Tensor, *, first: bool) -> None:
    """Write the matmul to ``total``, or add it; rounded to the dtype of ``total`` only."""
    if total.dtype is not left.dtype and total.device.type == "cpu":
        left, right = left.float(), right.float()  # PyTorch supports matmuls with a wider output dtype only on GPUs
    wide: dict[str, Any] = {} if total.dtype is left.dtype else {"out_dtype": total.dtype}
    if first:
        torch.mm(left, right, **wide, out=total)
    else:
        torch.addmm(total, left, right, **wide, out=total)

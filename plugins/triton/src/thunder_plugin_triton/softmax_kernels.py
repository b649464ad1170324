"""Kernels of softmax over rows: ``exp(s - max(s)) / sum(exp(s - max(s)))`` with the scores ``s = x * scale + mask``.

With the result ``y`` and its cotangent ``g``, the derivative with respect to ``x`` is ``scale * y * (g - sum(y * g))``.
Everything is computed in float32. A program holds short rows in registers, ``ROWS`` at a time, and reads long ones
twice, ``BLOCK`` elements at a time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.loops import bound
from thunder_plugin_triton.rounding import rounded


@triton.jit
def _mask_rows(mask, row, heads, queries, batch_stride, head_stride, query_stride):
    """The offsets of the mask's rows for rows of scores ``[batch, heads, queries]``."""
    query, rest = row % queries, row // queries
    batch, head = rest // heads, rest % heads
    start = batch.to(tl.int64) * batch_stride + head.to(tl.int64) * head_stride
    return mask + start + query.to(tl.int64) * query_stride


@triton.jit
def _scores(start, mask_start, column, mask_step, inside, scale):
    """``x * scale + mask``; minus infinity out of bounds."""
    s = tl.load(start + column, mask=inside, other=0.0).to(tl.float32) * scale
    if mask_start is not None:
        s += tl.load(mask_start + column * mask_step, mask=inside, other=0.0).to(tl.float32)
    return tl.where(inside, s, float("-inf"))


@triton.jit(do_not_specialize=["rows"])
def softmax_rows(
    input, mask, output, rows, width, row_stride, scale,
    heads, queries, batch_stride, head_stride, query_stride, mask_step, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Softmax of short rows.

    Args:
        input: ``[rows, width]`` with stride ``row_stride`` between rows.
        output: the same, contiguous.
        mask: elements with stride ``mask_step``, in the rows of `_mask_rows`; or None.
        BLOCK: a power of two, at least the width.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    mask_start = mask
    if mask is not None:
        mask_start = _mask_rows(mask, row, heads, queries, batch_stride, head_stride, query_stride)
    s = _scores(input + row.to(tl.int64) * row_stride, mask_start, column, mask_step, inside, scale)
    high = tl.max(s, 1, keep_dims=True)
    e = tl.exp(s - tl.where(row < rows, high, 0.0))
    y = e / tl.sum(e, 1, keep_dims=True)
    tl.store(output + row.to(tl.int64) * width + column, rounded(y, output.dtype.element_ty), mask=inside)


@triton.jit
def softmax_blocks(
    input, mask, output, width, row_stride, scale,
    heads, queries, batch_stride, head_stride, query_stride, mask_step, BLOCK: tl.constexpr,
):  # fmt: skip
    """Softmax of a long row.

    The first pass is an online softmax with a maximum and a sum per lane (Milakov and Gimelshein 2018).
    """
    row = tl.program_id(0)
    start = input + row.to(tl.int64) * row_stride
    mask_start = mask
    if mask is not None:
        mask_start = _mask_rows(mask, row, heads, queries, batch_stride, head_stride, query_stride)
    high = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, bound(width), BLOCK):
        column = first + tl.arange(0, BLOCK)
        s = _scores(start, mask_start, column, mask_step, column < width, scale)
        higher = tl.maximum(high, s)
        shift = tl.where(higher == float("-inf"), 0.0, higher)  # the difference of infinities would be NaN
        total = total * tl.exp(high - shift) + tl.exp(s - shift)
        high = higher
    highest = tl.max(high, 0)
    shift = tl.where(highest == float("-inf"), 0.0, highest)
    scale_of_sum = 1.0 / tl.sum(total * tl.exp(high - shift), 0)
    for first in range(0, bound(width), BLOCK):
        column = first + tl.arange(0, BLOCK)
        s = _scores(start, mask_start, column, mask_step, column < width, scale)
        y = tl.exp(s - shift) * scale_of_sum
        place = output + row.to(tl.int64) * width + column
        tl.store(place, rounded(y, output.dtype.element_ty), mask=column < width)


@triton.jit(do_not_specialize=["rows"])
def gradients_of_rows(
    result, cotangent, gradient, rows, width, cotangent_stride, scale, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """The gradient of the input of `softmax_rows`; result and gradient are contiguous."""
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (column < width)
    y = tl.load(result + row * width + column, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(cotangent + row * cotangent_stride + column, mask=inside, other=0.0).to(tl.float32)
    d = y * (g - tl.sum(y * g, 1, keep_dims=True)) * scale
    tl.store(gradient + row * width + column, rounded(d, gradient.dtype.element_ty), mask=inside)


@triton.jit
def gradients_of_blocks(result, cotangent, gradient, width, cotangent_stride, scale, BLOCK: tl.constexpr):
    """The gradient of the input of `softmax_blocks`; result and gradient are contiguous."""
    row = tl.program_id(0).to(tl.int64)
    products = tl.zeros([BLOCK], tl.float32)
    for first in range(0, bound(width), BLOCK):
        column = first + tl.arange(0, BLOCK)
        y = tl.load(result + row * width + column, mask=column < width, other=0.0).to(tl.float32)
        g = tl.load(cotangent + row * cotangent_stride + column, mask=column < width, other=0.0).to(tl.float32)
        products += y * g
    product = tl.sum(products, 0)
    for first in range(0, bound(width), BLOCK):
        column = first + tl.arange(0, BLOCK)
        y = tl.load(result + row * width + column, mask=column < width, other=0.0).to(tl.float32)
        g = tl.load(cotangent + row * cotangent_stride + column, mask=column < width, other=0.0).to(tl.float32)
        d = y * (g - product) * scale
        tl.store(gradient + row * width + column, rounded(d, gradient.dtype.element_ty), mask=column < width)

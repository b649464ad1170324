"""Kernels of layer normalization: ``n * weight + bias`` with ``n = (x - mean) * r`` and ``r = rsqrt(variance + eps)``.

With the cotangent ``g`` and ``m = g * weight``, the derivative with respect to ``x`` is ``r * (m - mean(m) - n * mean(m
* n))``; those with respect to weight and bias are the sums of ``g * n`` and ``g`` over rows. Everything is computed in
float32. A program handles whole rows, ``ROWS`` at a time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.loops import bound
from thunder_plugin_triton.rounding import rounded


@triton.jit(do_not_specialize=["rows"])
def normalize_rows(
    input, weight, bias, output, statistics, rows, width, row_stride, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    """The normalized rows, and their statistics.

    Args:
        input: ``[rows, width]`` with stride ``row_stride`` between rows.
        output: the same, contiguous.
        weight, bias: ``[width]`` or None.
        statistics: float32 ``[2, rows]``, means and ``r``; or None.
        BLOCK: a power of two, at least the width.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < width
    mask = (row < rows) & inside
    x = tl.load(input + row * row_stride + column, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    mean = tl.sum(x, 1, keep_dims=True) / width
    x = tl.where(inside, x - mean, 0.0)
    r = tl.rsqrt(tl.sum(x * x, 1, keep_dims=True) / width + eps)
    if statistics is not None:
        tl.store(statistics + row, mean, mask=row < rows)
        tl.store(statistics + rows + row, r, mask=row < rows)
    y = x * r
    if weight is not None:
        y *= tl.load(weight + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if bias is not None:
        y += tl.load(bias + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    tl.store(output + row * width + column, rounded(y, output.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def gradients_of_rows(
    input, weight, statistics, cotangent, gradient, of_weight, of_bias,
    rows, width, row_stride, cotangent_stride, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of the input, and for each program the sums of its rows' gradients of weight and bias.

    Tiles of rows are assigned to programs in turn, so that together they read memory sequentially.

    Args:
        gradient: ``[rows, width]``, contiguous; or None.
        of_weight, of_bias: float32 ``[programs, width]``; or None.
        STAGES: number of tiles in the pipeline.
    """
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < width
    weight_total = tl.zeros([ROWS, BLOCK], tl.float32)
    bias_total = tl.zeros([ROWS, BLOCK], tl.float32)
    if weight is not None:
        factor = tl.load(weight + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    start, step = bound(tl.program_id(0) * ROWS), bound(tl.num_programs(0) * ROWS)
    for first in tl.range(start, bound(rows), step, num_stages=STAGES):
        row = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        mask = (row < rows) & inside
        x = tl.load(input + row * row_stride + column, mask=mask, other=0.0, eviction_policy="evict_first")
        g = tl.load(cotangent + row * cotangent_stride + column, mask=mask, other=0.0, eviction_policy="evict_first")
        mean = tl.load(statistics + row, mask=row < rows, other=0.0)
        r = tl.load(statistics + rows + row, mask=row < rows, other=0.0)
        n = (x.to(tl.float32) - mean) * r
        g = g.to(tl.float32)  # 0 outside of the rows, where n is not 0
        if of_weight is not None:
            weight_total += g * n
        if of_bias is not None:
            bias_total += g
        if gradient is not None:
            if weight is not None:
                g *= factor
            g -= (tl.sum(g, 1, keep_dims=True) + n * tl.sum(g * n, 1, keep_dims=True)) / width
            tl.store(gradient + row * width + column, rounded(g * r, gradient.dtype.element_ty), mask=mask)
    place = tl.program_id(0).to(tl.int64) * width + column
    if of_weight is not None:
        tl.store(of_weight + place, tl.sum(weight_total, 0, keep_dims=True), mask=inside)
    if of_bias is not None:
        tl.store(of_bias + place, tl.sum(bias_total, 0, keep_dims=True), mask=inside)

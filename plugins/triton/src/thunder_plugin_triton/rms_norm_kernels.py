"""Kernels of root mean square normalization: ``n * weight`` with ``n = x * r`` and ``r = rsqrt(mean(x²) + eps)``.

With the cotangent ``g`` and ``m = g * weight``, the derivative with respect to ``x`` is ``r * (m - n * mean(m * n))``,
and that with respect to the weight the sum of ``g * n`` over rows. Everything is computed in float32. A program handles
whole rows, ``ROWS`` at a time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.loops import bound
from thunder_plugin_triton.rounding import rounded


@triton.jit
def _factor(weight, column, inside, UNIT_OFFSET: tl.constexpr, ROUNDED: tl.constexpr):
    """The factor of normalized rows, ``[1, BLOCK]``; with ``ROUNDED``, 1 is added in the weight's dtype."""
    factor = tl.load(weight + column, mask=inside, other=0.0, eviction_policy="evict_last").to(tl.float32)
    if UNIT_OFFSET:
        factor += 1.0
        if ROUNDED:
            factor = rounded(factor, weight.dtype.element_ty).to(tl.float32)
    return factor


@triton.jit(do_not_specialize=["rows"])
def normalize_rows(
    input, weight, output, scales, rows, width, row_stride, eps,
    UNIT_OFFSET: tl.constexpr, ROUNDED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The normalized rows, and ``r`` of each.

    Args:
        input: ``[rows, width]`` with stride ``row_stride`` between rows.
        output: the same, contiguous.
        weight: ``[width]`` or None.
        scales: float32 ``[rows]``, ``r``; or None.
        BLOCK: a power of two, at least the width.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < width
    mask = (row < rows) & inside
    x = tl.load(input + row * row_stride + column, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    r = tl.rsqrt(tl.sum(x * x, 1, keep_dims=True) / width + eps)
    if scales is not None:
        tl.store(scales + row, r, mask=row < rows)
    y = x * r
    if ROUNDED:
        y = rounded(y, input.dtype.element_ty).to(tl.float32)
    if weight is not None:
        y *= _factor(weight, column, inside, UNIT_OFFSET, ROUNDED)
    tl.store(output + row * width + column, rounded(y, output.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def gradients_of_rows(
    input, weight, scales, cotangent, gradient, partials, rows, width, row_stride, cotangent_stride,
    UNIT_OFFSET: tl.constexpr, ROUNDED: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradient of the input, and for each program the sum of its rows' gradients of the weight.

    Tiles of rows are assigned to programs in turn, so that together they read memory sequentially.

    Args:
        gradient: ``[rows, width]``, contiguous; or None.
        partials: float32 ``[programs, width]``; or None.
        STAGES: number of tiles in the pipeline.
    """
    column = tl.arange(0, BLOCK)[None, :]
    inside = column < width
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    if weight is not None:
        factor = _factor(weight, column, inside, UNIT_OFFSET, ROUNDED)
    start, step = bound(tl.program_id(0) * ROWS), bound(tl.num_programs(0) * ROWS)
    for first in tl.range(start, bound(rows), step, num_stages=STAGES):
        row = (first + tl.arange(0, ROWS)[:, None]).to(tl.int64)
        mask = (row < rows) & inside
        n = tl.load(input + row * row_stride + column, mask=mask, other=0.0, eviction_policy="evict_first")
        g = tl.load(cotangent + row * cotangent_stride + column, mask=mask, other=0.0, eviction_policy="evict_first")
        r = tl.load(scales + row, mask=row < rows, other=0.0)
        n = n.to(tl.float32) * r
        g = g.to(tl.float32)
        if partials is not None:
            total += g * n  # of n before rounding, which is more accurate
        if gradient is not None:
            if weight is not None:
                g *= factor
            g = r * (g - n * (tl.sum(g * n, 1, keep_dims=True) / width))
            tl.store(gradient + row * width + column, rounded(g, gradient.dtype.element_ty), mask=mask)
    if partials is not None:
        place = partials + tl.program_id(0).to(tl.int64) * width + column
        tl.store(place, tl.sum(total, 0, keep_dims=True), mask=inside)

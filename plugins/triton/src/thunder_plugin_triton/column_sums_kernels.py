"""The second half of sums over rows: each program of a first kernel wrote the sum of its own rows."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.loops import bound
from thunder_plugin_triton.rounding import rounded


@triton.jit(do_not_specialize=["count"])
def sum_columns(partials, output, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums over the first dimension, always in one order.

    Args:
        partials: float32 ``[count, width]``; output: ``[width]``, of any floating-point dtype.
    """
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, bound(count), ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(partials + row.to(tl.int64) * width + column, mask=(row < count) & (column < width), other=0.0)
    total = tl.sum(total, 0, keep_dims=True)
    tl.store(output + column, rounded(total, output.dtype.element_ty), mask=column < width)

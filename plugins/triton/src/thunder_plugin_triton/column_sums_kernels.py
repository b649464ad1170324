"""The second stage of sums over rows: each program of the first kernel wrote the sum of its rows."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.loops import bound
from thunder_plugin_triton.rounding import rounded


@triton.jit(do_not_specialize=["count"])
def sum_columns(partials, output, other, count, width, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """Sums over rows in a fixed order. The second program index selects one of two sums.

    Args:
        partials: float32 ``[1 or 2, count, width]``.
        output: ``[width]``, of any floating-point dtype.
        other: the output of the second sums; or None.
    """
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    partials += tl.program_id(1).to(tl.int64) * count * width
    total = tl.zeros([ROWS, BLOCK], tl.float32)
    for first in range(0, bound(count), ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        total += tl.load(partials + row.to(tl.int64) * width + column, mask=(row < count) & (column < width), other=0.0)
    total = tl.sum(total, 0, keep_dims=True)
    # This selects a number instead of a condition: Triton's interpreter gives masks from a scalar condition a dtype
    # that its loads and stores reject.
    inside = column < tl.where(tl.program_id(1) == 0, width, 0)
    tl.store(output + column, rounded(total, output.dtype.element_ty), mask=inside)
    if other is not None:
        inside = column < tl.where(tl.program_id(1) == 1, width, 0)
        tl.store(other + column, rounded(total, other.dtype.element_ty), mask=inside)

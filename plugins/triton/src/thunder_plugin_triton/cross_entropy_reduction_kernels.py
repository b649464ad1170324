"""The kernel that reduces losses."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.loops import bound
from thunder_plugin_triton.rounding import rounded


@triton.jit(do_not_specialize=["rows"])
def reduce_losses(
    losses, targets, weights, result, totals, rows, ignore_index,
    MEAN: tl.constexpr, CLASSES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The sum or mean of losses, and the total of weights that the mean divides by, in one program and a fixed order.

    It asserts that targets are classes, or ``ignore_index``.

    Args:
        losses: float32 ``[rows]``, or None.
        result: a scalar, the output if there are losses.
        totals: a float32 scalar, the output: the sum of the weights of targets that are not ignored.
    """
    total = tl.zeros([BLOCK], tl.float32)
    loss = tl.zeros([BLOCK], tl.float32)
    for first in range(0, bound(rows), BLOCK):
        row = first + tl.arange(0, BLOCK)
        target = tl.load(targets + row, mask=row < rows, other=0).to(tl.int64)
        live = (row < rows) & (target != ignore_index)
        known = (target >= 0) & (target < CLASSES)
        tl.device_assert(known | ~live, "a target is not a class")
        if weights is None:
            total += live.to(tl.float32)
        else:
            total += tl.load(weights + target, mask=live & known, other=0.0).to(tl.float32)
        if losses is not None:
            loss += tl.load(losses + row, mask=row < rows, other=0.0)
    divisor = tl.sum(total, 0)
    tl.store(totals, divisor)
    if losses is not None:
        value = tl.sum(loss, 0)
        if MEAN:
            value /= divisor
        tl.store(result, rounded(value, result.dtype.element_ty))

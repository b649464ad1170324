"""Kernels of cross entropy with class indices as targets.

A row has logits ``x`` of ``C`` classes and a target ``t``. With ``L = logsumexp(x)``, class weights ``w`` (ones by
default), their sum ``W`` and the label smoothing ``s``, its loss is, as in `torch.nn.functional.cross_entropy`::

    (1 - s) * w[t] * (L - x[t]) + s / C * (W * L - sum(w * x))

and the derivative with respect to ``x[c]``, with ``p = exp(x - L)``::

    ((1 - s) * w[t] + s / C * W) * p[c] - (1 - s) * w[t] * (c == t) - s / C * w[c]

Everything is computed in float32. A program handles ``ROWS`` rows, of which it reads ``BLOCK`` classes at a time.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.rounding import rounded


@triton.jit
def _loss(
    start, target, live, weights, weight_sum, smoothing,
    CLASSES: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Losses and logsumexps of rows in one pass, with an online softmax (Milakov and Gimelshein 2018).

    Rows that are not ``live`` are not read.
    """
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    smooth = tl.zeros([ROWS], tl.float32)
    of_target = tl.load(start + target, mask=live, other=0.0).to(tl.float32)
    if tl.max(live.to(tl.int32), 0) > 0:
        for first in tl.range(0, CLASSES, BLOCK, num_stages=STAGES):
            column = first + tl.arange(0, BLOCK)
            inside = (column < CLASSES)[None, :] & live[:, None]
            mask = (column < COLUMNS)[None, :] & live[:, None]
            x = tl.load(start[:, None] + column[None, :], mask=mask, other=0.0).to(tl.float32)
            high = tl.maximum(largest, tl.max(tl.where(inside, x, float("-inf")), 1))
            shift = tl.where(high == float("-inf"), 0.0, high)  # the difference of infinities would be NaN
            total = total * tl.exp(largest - shift)
            total += tl.sum(tl.where(inside, tl.exp(x - shift[:, None]), 0.0), 1)
            largest = high
            if smoothing is not None:
                if weights is not None:
                    x *= tl.load(weights + column, mask=column < CLASSES, other=0.0).to(tl.float32)[None, :]
                smooth += tl.sum(tl.where(inside, x, 0.0), 1)
    logsumexp = tl.where(largest == float("-inf"), 0.0, largest) + tl.log(total)
    loss = logsumexp - of_target
    if weights is not None:
        loss *= tl.load(weights + target, mask=live, other=0.0).to(tl.float32)
    if smoothing is not None:
        loss = (1.0 - smoothing) * loss + smoothing / CLASSES * (weight_sum * logsumexp - smooth)
    return tl.where(live, loss, 0.0), logsumexp


@triton.jit
def _derivative(x, column, logsumexp, target, weights, weight_sum, smoothing, CLASSES: tl.constexpr):
    """The derivative with respect to logits ``[ROWS, BLOCK]`` of the classes ``column``."""
    p = tl.exp(x - logsumexp[:, None])
    hit = (column[None, :] == target[:, None]).to(tl.float32)
    factor = tl.full([1], 1.0, tl.float32)
    if weights is not None:
        factor = tl.load(weights + target).to(tl.float32)
    slope = factor[:, None] * (p - hit)
    if smoothing is not None:
        spread = smoothing / CLASSES
        slope *= 1.0 - smoothing
        if weights is None:
            slope += smoothing * p - spread
        else:
            each = tl.load(weights + column, mask=column < CLASSES, other=0.0).to(tl.float32)
            slope += spread * (weight_sum * p - each[None, :])
    return slope


@triton.jit(do_not_specialize=["rows"])
def losses_of_rows(
    logits, targets, weights, weight_sums, losses, logsumexps, scales,
    rows, row_stride, ignore_index, smoothing,
    GRADIENT: tl.constexpr, CLASSES: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """The loss of each row, 0 if it is ignored, and its logsumexp; with ``GRADIENT`` the derivatives overwrite the
    logits.

    Args:
        logits: ``[rows, CLASSES]``, in memory of which ``COLUMNS >= CLASSES`` may be read and, with ``GRADIENT``,
            written.
        targets: ``[rows]``; for an invalid class no memory is read, and the loss is that of some class.
        weights: ``[CLASSES]`` or None.
        weight_sums: float32, their sum.
        losses, logsumexps: float32 ``[rows]``; logsumexps may be None.
        scales: float32, a factor of the derivative; read only with ``GRADIENT``.
        smoothing: None for 0.
        STAGES: number of blocks of logits in the pipeline.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    exists = row < rows
    target = tl.load(targets + row, mask=exists, other=0).to(tl.int64)
    live = exists & (target != ignore_index)
    target = tl.minimum(tl.maximum(tl.where(live, target, 0), 0), CLASSES - 1)
    weight_sum = 1.0 * CLASSES
    if weights is not None:
        weight_sum = tl.load(weight_sums)
    start = logits + row * row_stride
    loss, logsumexp = _loss(start, target, live, weights, weight_sum, smoothing, CLASSES, COLUMNS, ROWS, BLOCK, STAGES)
    tl.store(losses + row, loss, mask=exists)
    if logsumexps is not None:
        tl.store(logsumexps + row, logsumexp, mask=exists)
    if GRADIENT:
        scale = tl.load(scales)
        tl.debug_barrier()  # all threads have read the logits of targets before any overwrites them
        for first in range(0, COLUMNS, BLOCK):
            column = first + tl.arange(0, BLOCK)
            mask = (column < COLUMNS)[None, :] & exists[:, None]
            place = start[:, None] + column[None, :]
            x = tl.load(place, mask=mask & live[:, None], other=0.0).to(tl.float32)
            slope = _derivative(x, column, logsumexp, target, weights, weight_sum, smoothing, CLASSES)
            slope = tl.where(live[:, None] & (column < CLASSES)[None, :], slope * scale, 0.0)
            tl.store(place, rounded(slope, logits.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["rows"])
def gradients_of_rows(
    logits, targets, weights, weight_sums, logsumexps, cotangents, totals, gradients,
    rows, row_stride, gradient_stride, cotangent_stride, ignore_index, smoothing,
    CLASSES: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradient of the logits: the derivative times the cotangent, divided by the total if any; 0 in ignored rows.

    A program handles ``ROWS`` rows and ``BLOCK`` classes; neighboring programs have the same rows.

    Args:
        logsumexps: float32 ``[rows]``.
        cotangents: of the loss of each row, with stride ``cotangent_stride`` (0: one for all rows).
        totals: float32, the divisor of the sum of losses; or None.
        gradients: ``[rows, CLASSES]``, the output.
    """
    blocks = tl.cdiv(CLASSES, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    exists = row < rows
    target = tl.load(targets + row, mask=exists, other=0).to(tl.int64)
    live = exists & (target != ignore_index)
    target = tl.minimum(tl.maximum(tl.where(live, target, 0), 0), CLASSES - 1)
    logsumexp = tl.load(logsumexps + row, mask=live, other=0.0)
    scale = tl.load(cotangents + row * cotangent_stride, mask=exists, other=0.0).to(tl.float32)
    if totals is not None:
        scale /= tl.load(totals)
    weight_sum = 1.0 * CLASSES
    if weights is not None:
        weight_sum = tl.load(weight_sums)
    mask = exists[:, None] & (column < CLASSES)[None, :]
    place = row[:, None] * row_stride + column[None, :]
    x = tl.load(logits + place, mask=mask & live[:, None], other=0.0).to(tl.float32)
    slope = _derivative(x, column, logsumexp, target, weights, weight_sum, smoothing, CLASSES)
    slope = tl.where(live[:, None], slope * scale[:, None], 0.0)
    place = row[:, None] * gradient_stride + column[None, :]
    tl.store(gradients + place, rounded(slope, gradients.dtype.element_ty), mask=mask)

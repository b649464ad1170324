"""The kernel of rotary embeddings: ``(x1, x2) * cos + (-x2, x1) * sin`` of the halves of a row, computed in float32."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.rounding import rounded


@triton.jit(do_not_specialize=["heads", "tokens"])
def rotate(
    input, cos, sin, output, heads, tokens,
    input_batch, input_head, input_token, output_batch, output_head, output_token,
    cos_batch, cos_token, sin_batch, sin_token,
    HALF: tl.constexpr, BACKWARD: tl.constexpr, HEADS: tl.constexpr, TOKENS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Rotate rows of ``2 * HALF`` adjacent elements; with ``BACKWARD`` by the transposed matrix.

    A program handles ``HEADS`` heads of ``TOKENS`` tokens, for which it reads ``cos`` and ``sin`` once. Neighboring
    programs have the same tokens. ``*_batch``, ``*_head`` and ``*_token`` are strides.
    """
    blocks = tl.cdiv(heads, HEADS)
    head = (tl.program_id(0) % blocks).to(tl.int64) * HEADS + tl.arange(0, HEADS)[:, None, None]
    rest = tl.program_id(0) // blocks
    blocks = tl.cdiv(tokens, TOKENS)
    token = (rest % blocks).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)[None, :, None]
    batch = (rest // blocks).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, None, :]
    inside = (token < tokens) & (column < HALF)
    place = cos + batch * cos_batch + token * cos_token + column
    cos1 = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    cos2 = tl.load(place + HALF, mask=inside, other=0.0).to(tl.float32)
    place = sin + batch * sin_batch + token * sin_token + column
    sin1 = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    sin2 = tl.load(place + HALF, mask=inside, other=0.0).to(tl.float32)
    inside &= head < heads
    place = input + batch * input_batch + head * input_head + token * input_token + column
    x1 = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    x2 = tl.load(place + HALF, mask=inside, other=0.0).to(tl.float32)
    if BACKWARD:
        y1 = x1 * cos1 + x2 * sin2
        y2 = x2 * cos2 - x1 * sin1
    else:
        y1 = x1 * cos1 - x2 * sin1
        y2 = x2 * cos2 + x1 * sin2
    place = output + batch * output_batch + head * output_head + token * output_token + column
    tl.store(place, rounded(y1, output.dtype.element_ty), mask=inside)
    tl.store(place + HALF, rounded(y2, output.dtype.element_ty), mask=inside)

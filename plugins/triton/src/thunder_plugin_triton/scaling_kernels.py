"""A kernel that multiplies by a number in GPU memory."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.rounding import rounded


@triton.jit
def scale_elements(input, cotangents, factors, output, count, BLOCK: tl.constexpr):
    """``input * cotangent * factor`` of ``count`` adjacent elements, computed in float32.

    Args:
        cotangents, factors: scalars; factors may be None.
    """
    scale = tl.load(cotangents).to(tl.float32)
    if factors is not None:
        scale *= tl.load(factors)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(input + place, mask=place < count, other=0.0).to(tl.float32)
    tl.store(output + place, rounded(x * scale, output.dtype.element_ty), mask=place < count)

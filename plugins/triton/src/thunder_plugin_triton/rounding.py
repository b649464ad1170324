"""Rounding of float32 results."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.environment import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """Round float32 values to ``dtype``, to nearest, ties to even. Triton's interpreter truncates to bfloat16."""
    if _INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        near = bits + 0x7FFF + ((bits >> 16) & 1)
        # exact after rounding; preserves NaN
        x = tl.where(x == x, near & 0xFFFF0000, bits).to(tl.float32, bitcast=True)
    return x.to(dtype)

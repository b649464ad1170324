"""Bounds of loops in kernels."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.environment import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def bound(number):
    """A bound for `range`: the interpreter's numbers are arrays, which NumPy 2.4 does not convert implicitly."""
    if _INTERPRETED:
        return int(number.handle.data.item())
    else:  # the compiler evaluates this condition
        return number

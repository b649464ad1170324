"""Bounds of loops in kernels."""

# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls

from __future__ import annotations

import triton
import triton.language as tl

from thunder_plugin_triton.environment import INTERPRETED

_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def bound(number):
    """A number for `range`: the interpreter has arrays of one element, of which NumPy 2.4 makes no Python number."""
    if _INTERPRETED:
        return int(number.handle.data.item())
    else:  # the compiler sees one of the branches
        return number

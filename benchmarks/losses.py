"""Whether an implementation computes what eager does, told from its losses.

Two right programs that round differently drift apart. How far is measured: eager runs again with other kernels. The
losses of an implementation may differ from eager's by twice as much as the farthest of these runs, or by the resolution
of the precision, whichever is more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOISE_LIMIT = 2
FLOAT8_LIMIT = 1
"""Percent that the last losses of training in float8 may differ by."""
RESOLUTION = {"bf16-true": 2**-7, "bf16-autocast": 2**-7, "float32": 2**-12}
"""Of bfloat16, 2**-7: the distance of two neighbouring numbers, relative to them, at most; a ``bf16-true`` loss is one.

In float32 a loss is a sum of many terms, of which each has its own rounding: half of the digits.
"""


def largest_difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference; nan if a loss is nan."""
    return largest(abs(loss - right) / abs(right) for loss, right in zip(losses, expected, strict=True))


def largest(differences: Iterable[float]) -> float:
    """The largest, which is nan if there is one, and 0 if there are none."""
    found = list(differences)
    return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)


def allowed(noise: Iterable[float], precision: str) -> float:
    """The largest relative difference that is put down to rounding, from those of eager's runs with other kernels."""
    return max(NOISE_LIMIT * largest(noise), RESOLUTION[precision])

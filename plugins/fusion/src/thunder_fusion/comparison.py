"""Comparison of the results of a compiled region with those of PyTorch's kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace

_MOST_OTHERS = 0.01
"""The share of integers and booleans that may differ: rounding decides them where they come from comparisons."""


def allowed_difference(region: Trace) -> float:
    """The largest difference that counts as rounding, as a share of the largest element of a result.

    It is the square root of the epsilon of the coarsest dtype in the region: 3.5e-4 for float32, 0.09 for bfloat16.
    """
    values = [*region.inputs, *[proxy for op in region.symbols for proxy in op.outputs()]]
    dtypes = {proxy.dtype for proxy in values if isinstance(proxy, TensorProxy)}
    return math.sqrt(max([torch.finfo(dtype).eps for dtype in dtypes if _has_rounding(dtype)], default=0.0))


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences of some tensors from those of PyTorch's kernels. They are on the device until they are read.

    Attributes:
        rounding: for each floating-point tensor the largest difference of an element, as a share of the largest
            element.
        others: for each other tensor the share of elements that differ.
    """

    rounding: tuple[torch.Tensor, ...]
    others: tuple[torch.Tensor, ...]

    @classmethod
    def of(cls, results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> Comparison:
        """The comparison of tensors with equal metadata."""
        pairs = [(one, other) for one, other in zip(results, expected, strict=True) if one.numel()]
        rounding = tuple([_distance(*pair) for pair in pairs if _has_rounding(pair[0].dtype)])
        others = tuple([(one != other).float().mean() for one, other in pairs if not _has_rounding(one.dtype)])
        return cls(rounding, others)

    def largest(self) -> float:
        """The largest difference of floating-point tensors. Waits for the device."""
        values = [float(value) for value in self.rounding]
        return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)

    def problem(self, allowed: float) -> str | None:
        """What is more than rounding; None if nothing is. Waits for the device."""
        largest = self.largest()
        if not largest <= allowed:
            return f"its results differ by {largest:.1e} of the largest element, and rounding explains {allowed:.1e}"
        share = max(map(float, self.others), default=0.0)
        return f"{share:.1%} of the elements of a result differ" if share > _MOST_OTHERS else None


def _has_rounding(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The largest distance of two elements, as a share of the largest finite element of ``other``.

    It is NaN if only one of two elements is, infinite if only one is infinite.
    """
    wide = torch.promote_types(other.dtype, torch.float32)
    one, other = one.to(wide), other.to(wide)
    equal = (one == other) | (one.isnan() & other.isnan())
    distance = torch.where(equal, 0, (one - other).abs())
    largest = torch.where(other.isfinite(), other.abs(), 0).max()
    return distance.max() / largest.clamp(min=torch.finfo(largest.dtype).tiny)

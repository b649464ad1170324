"""Results of a call, and how much they differ from those of another program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

TOLERANCES: Final = {
    torch.float64: 1e-9,
    torch.complex128: 1e-9,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
"""The largest accepted error of a tensor, by dtype: above the rounding of other kernels in deep models, and below that
of kernels which compute in a smaller dtype.
"""
_COARSE: Final = 0.25  # of other floating-point dtypes, such as float8
_SMALL: Final = 1e-3

Results = Mapping[str, Any]
"""Outputs and gradients by name; those of one kind have names that begin with the same word."""


@dataclass(frozen=True)
class Difference:
    """The largest difference between two sets of results.

    Attributes:
        name: of the result; empty if all are equal.
        error: its error; infinite for other shapes, dtypes, positions of NaN, and values that are no floating-point
            numbers.
        tolerance: the accepted error.
    """

    name: str = ""
    error: float = 0.0
    tolerance: float = 0.0

    @property
    def accepted(self) -> bool:
        """Whether the error is at most the tolerance."""
        return self.error <= self.tolerance

    def __str__(self) -> str:
        if not self.name:
            return "results are equal"
        if math.isinf(self.error):
            return f"{self.name} differs"
        return f"{self.name} differs by {self.error:.2g} (accepted: {self.tolerance:.2g})"


def difference(found: Results, expected: Results, tolerance: float | None = None) -> Difference:
    """The largest difference, compared with its tolerance.

    The error of a tensor is the root mean square of the difference, relative to that of the expected values: but at
    least to a thousandth of that of all outputs, or all gradients. So a gradient that is zero but for rounding has no
    large error.

    Args:
        found, expected: results of two calls with the same inputs and random state.
        tolerance: the accepted error; None for `TOLERANCES`.
    """
    if found.keys() != expected.keys():
        names = sorted(found.keys() ^ expected.keys())
        return Difference(f"the structure of results ({names[0]})", math.inf)
    scales = _scales(expected)
    worst = Difference()
    for name, value in expected.items():
        one = _difference(name, found[name], value, scales.get(_kind(name), 0.0), tolerance)
        if one.error and (one.error - one.tolerance > worst.error - worst.tolerance or not worst.name):
            worst = one
    return worst


def _difference(name: str, found: Any, expected: Any, scale: float, tolerance: float | None) -> Difference:
    if not isinstance(expected, torch.Tensor) or not isinstance(found, torch.Tensor):
        return Difference() if type(found) is type(expected) and found == expected else Difference(name, math.inf)
    if (found.shape, found.dtype, found.device) != (expected.shape, expected.dtype, expected.device):
        return Difference(name, math.inf)
    if not _inexact(expected):
        return Difference() if torch.equal(found, expected) else Difference(name, math.inf)
    first, second = _wide(found), _wide(expected)
    finite = torch.isfinite(second)
    if not torch.equal(torch.isfinite(first), finite) or not _same_outside(first, second, finite):
        return Difference(name, math.inf)
    first, second = first[finite], second[finite]
    accepted = TOLERANCES.get(expected.dtype, _COARSE) if tolerance is None else tolerance
    error, size = _rms(first - second), max(_rms(second), _SMALL * scale)
    return Difference(name, error / size if size else math.inf, accepted) if error else Difference()


def _same_outside(first: torch.Tensor, second: torch.Tensor, finite: torch.Tensor) -> bool:
    """Whether values that are not finite are the same."""
    return bool(torch.allclose(first[~finite], second[~finite], equal_nan=True))


def _scales(results: Results) -> dict[str, float]:
    """The root mean square of all finite values of each kind of results."""
    sums: dict[str, tuple[float, int]] = {}
    for name, value in results.items():
        if isinstance(value, torch.Tensor) and _inexact(value):
            wide = _wide(value)
            wide = wide[torch.isfinite(wide)]
            total, count = sums.get(_kind(name), (0.0, 0))
            sums[_kind(name)] = (total + wide.abs().square().sum().item(), count + wide.numel())
    return {kind: math.sqrt(total / count) if count else 0.0 for kind, (total, count) in sums.items()}


def _kind(name: str) -> str:
    return name.partition(" ")[0]


def _inexact(value: torch.Tensor) -> bool:
    return value.is_floating_point() or value.is_complex()


def _wide(value: torch.Tensor) -> torch.Tensor:
    value = value.detach()
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _rms(value: torch.Tensor) -> float:
    return math.sqrt(value.abs().square().mean().item()) if value.numel() else 0.0

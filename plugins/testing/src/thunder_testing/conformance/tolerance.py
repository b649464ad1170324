"""Tolerances of values relative to eager PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

Tolerance = tuple[float, float]
"""``(rtol, atol)``."""

EXACT: Final[Tolerance] = (0.0, 0.0)

DEFAULT: Final[dict[torch.dtype, Tolerance]] = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex32: (1e-3, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
"""The tolerances of `torch.testing.assert_close`. Values of all other dtypes must be equal."""

EAGER_ERRORS: Final = 2.0
"""Largest allowed error, as a multiple of eager's error."""


@dataclass(frozen=True, eq=False)
class Tolerances:
    """`DEFAULT`, overridden by the suite's tolerances.

    Attributes:
        given: by symbol name, by dtype, or by a pair of both, which has precedence; a name has precedence over a dtype.
    """

    given: Mapping[Any, Tolerance] = field(default_factory=dict)

    def of(self, symbol: str, dtype: torch.dtype) -> Tolerance:
        """The tolerance of a result of this dtype."""
        for key in ((symbol, dtype), symbol, dtype):
            if key in self.given:
                return self.given[key]
        return DEFAULT.get(dtype, EXACT)


def value_problem(
    actual: torch.Tensor,
    expected: torch.Tensor,
    tolerance: Tolerance,
    reference: Callable[[], torch.Tensor | None],
) -> str | None:
    """A description of the largest difference that exceeds the tolerance; None if all are allowed.

    An element is correct if its difference from eager's is within the tolerance. Otherwise ``reference`` computes the
    result in double precision, and the element is also correct if its difference from that is at most the tolerance,
    plus twice the largest error of eager's elements. NaN equals NaN.

    Args:
        actual, expected: of equal shape and dtype; expected is eager's.
        reference: the result of eager PyTorch from inputs in double precision; None if that does not exist.
    """
    ours, theirs = _wide(actual), _wide(expected)
    wrong = ~_equal(ours, theirs) & ~(_distance(ours, theirs) <= _allowed(theirs, tolerance))
    if not bool(wrong.any()):
        return None
    if tolerance != EXACT and (exact := reference()) is not None and exact.shape == expected.shape:
        wrong &= ~_as_good_as_eager(ours, theirs, _wide(exact), tolerance)
    return _worst(wrong, ours, theirs, tolerance) if bool(wrong.any()) else None


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether all elements have the same bits, also those of NaN."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.numel():
        return True
    return torch.equal(_bytes(one), _bytes(other))


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    # A copy, because `contiguous` preserves any stride of a dimension of size one, which `view` then rejects.
    packed = dense.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
    return packed.reshape(-1).view(torch.uint8)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    dense = tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach()
    dense = dense.resolve_conj().resolve_neg().cpu()
    if dense.is_complex():
        return dense.to(torch.complex128)
    return dense.to(torch.float64) if dense.is_floating_point() else dense.to(torch.int64)


def _equal(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def _distance(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one - other).abs().to(torch.float64)


def _allowed(expected: torch.Tensor, tolerance: Tolerance) -> torch.Tensor:
    rtol, atol = tolerance
    size = expected.abs().to(torch.float64)
    return torch.where(size.isfinite(), atol + rtol * size, torch.zeros_like(size))


def _as_good_as_eager(
    ours: torch.Tensor, theirs: torch.Tensor, exact: torch.Tensor, tolerance: Tolerance
) -> torch.Tensor:
    eager = _distance(theirs, exact)
    largest = max(eager[eager.isfinite()].tolist(), default=0.0)
    return _equal(ours, exact) | (_distance(ours, exact) <= EAGER_ERRORS * largest + _allowed(exact, tolerance))


def _worst(wrong: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor, tolerance: Tolerance) -> str:
    distance = torch.where(wrong, _distance(ours, theirs).nan_to_num(math.inf, math.inf), -1.0)
    position = tuple(int(index) for index in torch.unravel_index(distance.argmax(), distance.shape))
    expected, actual = theirs[position].item(), ours[position].item()
    allowed = float(_allowed(theirs, tolerance)[position])
    count, place = f"{int(wrong.sum())} of {wrong.numel()} elements are wrong", list(position)
    what = f"{count}; the worst, at {place}," if position else "it"
    return f"{what} is {actual!r}, where eager PyTorch gives {expected!r} (allowed difference: {allowed:.3g})"

"""Description of the difference of two tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch

_RTOL: Final = {
    torch.float64: 1e-7,
    torch.complex128: 1e-7,
    torch.float32: 1e-4,
    torch.complex64: 1e-4,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
_COARSE: Final = 0.25  # of eight-bit formats, which have two or three mantissa bits


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The allowed difference: ``atol + rtol * (|expected| + root mean square of all expected)``.

    The error of a sum in another order is proportional to its terms rather than to itself, hence the root mean square.

    Attributes:
        rtol: None for the default of the dtype: 1e-7 for float64, 1e-4 for float32, 1e-2 for float16, 5e-2 for
            bfloat16, 0.25 for eight-bit formats. Integers must be equal.
        atol: None for the smallest normal number of the dtype.
    """

    rtol: float | None = None
    atol: float | None = None

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """``(rtol, atol)`` for a floating-point or complex dtype."""
        rtol = _RTOL.get(dtype, _COARSE) if self.rtol is None else self.rtol
        return rtol, torch.finfo(dtype).tiny if self.atol is None else self.atol


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one value.

    Attributes:
        value: its name in the trace.
        text: description of the difference.
        greatest: the largest difference of an element; None if shape, dtype, device or strides differ.
        index: the index of that element.
    """

    value: str
    text: str
    greatest: float | None = None
    index: tuple[int, ...] = ()


def difference(
    value: str, actual: Any, expected: Any, tolerance: Tolerance, *, strides: bool = True
) -> Difference | None:
    """The difference of ``actual`` from ``expected``; None if there is none. Neither is modified.

    Args:
        value: name of the value.
        strides: whether strides are compared as well, in dimensions with several elements.
    """
    if not isinstance(expected, torch.Tensor) or not isinstance(actual, torch.Tensor):
        same = type(actual) is type(expected) and (isinstance(actual, torch.Tensor) or actual == expected)
        return None if same else Difference(value, f"{value} is {_brief(actual)} instead of {_brief(expected)}")
    for what, one, other in _metadata(actual, expected, strides):
        if one != other:
            return Difference(value, f"{value} has {what} {one} instead of {other}")
    return _of_values(value, actual.detach(), expected.detach(), tolerance)


def _brief(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, torch.Tensor) else f"{value!r:.60}"


def _metadata(actual: torch.Tensor, expected: torch.Tensor, strides: bool) -> list[tuple[str, Any, Any]]:
    mismatches = [
        ("shape", tuple(actual.shape), tuple(expected.shape)),
        ("dtype", actual.dtype, expected.dtype),
        ("device", actual.device, expected.device),
        ("layout", actual.layout, expected.layout),
    ]
    if strides and actual.layout is torch.strided is expected.layout and expected.numel():
        mismatches.append(("strides", _strides(actual), _strides(expected)))
    return mismatches


def _strides(tensor: torch.Tensor) -> tuple[int | None, ...]:
    """Strides; None for dimensions of size 1, whose stride is meaningless."""
    return tuple([step if size != 1 else None for size, step in zip(tensor.shape, tensor.stride(), strict=True)])


def _of_values(value: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> Difference | None:
    if expected.layout is not torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    dtype = expected.dtype
    if not expected.numel():
        return None
    if not (dtype.is_floating_point or dtype.is_complex):
        return _of_integers(value, actual, expected)
    rtol, atol = tolerance.of(dtype)
    actual, expected = _widened(actual), _widened(expected)
    size = torch.where(torch.isfinite(expected), expected.abs(), 0)
    mean_square = (torch.linalg.vector_norm(size, dtype=torch.float64) / size.numel() ** 0.5).to(size.dtype)
    distance = _distance(actual, expected)
    beyond = distance > atol + rtol * (size + mean_square)
    count = int(beyond.sum())
    if not count:
        return None
    place = int(torch.where(beyond, distance, -1).flatten().argmax())
    text = (
        f"{value} differs in {count} of {expected.numel()} elements by more than rtol={rtol:g} and atol={atol:g} allow"
    )
    return _at(value, text, place, actual, expected, float(distance.flatten()[place]))


def _of_integers(value: str, actual: torch.Tensor, expected: torch.Tensor) -> Difference | None:
    beyond = actual != expected
    count = int(beyond.sum())
    if not count:
        return None
    distance = torch.where(beyond, (actual.double() - expected.double()).abs(), -1)
    place = int(distance.flatten().argmax())
    text = f"{value} differs in {count} of {expected.numel()} elements"
    return _at(value, text, place, actual, expected, float(distance.flatten()[place]))


def _at(value: str, text: str, place: int, actual: torch.Tensor, expected: torch.Tensor, greatest: float) -> Difference:
    index = tuple([int(item) for item in torch.unravel_index(torch.tensor(place), expected.shape)])
    one, other = actual[index].item(), expected[index].item()
    where = f" at {index}" if index else ""
    return Difference(value, f"{text}; the most{where}: {one:.8g} instead of {other:.8g}", greatest, index)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """Eight-bit and 16-bit formats as float32: PyTorch lacks operations for some, and differences would be rounded."""
    if tensor.is_complex():
        return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor
    return tensor.float() if tensor.element_size() < 4 else tensor


def _distance(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """The difference of each element: 0 for equal infinities and for two NaNs, infinity for NaN in one of the two."""
    same = (actual == expected) | (torch.isnan(actual) & torch.isnan(expected))
    distance = torch.where(same, 0, (actual - expected).abs())
    return torch.nan_to_num(distance, nan=float("inf"), posinf=float("inf"))

"""What is checked of a tensor that is an input of the compiled program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from thunder_core.guards.guard import Guard, show, type_name
from thunder_core.guards.source import Names, Source
from thunder_core.ir.proxy import Dimension
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, disabled_torch_function_impl, is_alias_of


@dataclass(frozen=True, slots=True)
class TensorGuard(Guard):
    """Class and metadata of a tensor.

    Attributes:
        stride: as the tensor has it; dimensions of one element count only with ``exact_stride``.
        conjugate, negative: lazy conjugation and negation, which decide what is a view.
    """

    expected: type[Any]
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool
    layout: torch.layout = torch.strided
    conjugate: bool = False
    negative: bool = False
    exact_stride: bool = False
    kind: ClassVar[str] = "tensor"

    def remedy(self) -> str:
        return "pad it to a few shapes, with the same dtype, device, strides and requires_grad at each call"

    @classmethod
    def of(cls, source: Source, tensor: torch.Tensor, *, exact_stride: bool = False) -> TensorGuard:
        """The guard that ``tensor`` fulfils now."""
        strided = tensor.layout is torch.strided
        return cls(
            source,
            type(tensor),
            tuple(tensor.shape),
            tuple(tensor.stride()) if strided else (),
            tensor.dtype,
            tensor.device,
            tensor.requires_grad,
            tensor.layout,
            tensor.is_conj(),
            tensor.is_neg(),
            exact_stride,
        )

    @property
    def needs_exact_stride(self) -> bool:
        """True when comparing strides as tuples is right: all of them count."""
        return self.exact_stride or all(size > 1 for size in self.shape)

    def differences(self, value: Any) -> list[str]:
        """What differs, as ``shape (3, 4) instead of (2, 4)``."""
        if type(value) is not self.expected:
            return [f"type {type_name(type(value))} instead of {type_name(self.expected)}"]
        found = [
            f"{name} {got} instead of {expected}"
            for name, expected, got in (
                ("shape", self.shape, tuple(value.shape)),
                ("dtype", self.dtype, value.dtype),
                ("device", self.device, value.device),
                ("requires_grad", self.requires_grad, value.requires_grad),
                ("layout", self.layout, value.layout),
                ("is_conj", self.conjugate, value.is_conj()),
                ("is_neg", self.negative, value.is_neg()),
            )
            if got != expected
        ]
        if not found and self.layout is torch.strided and not self._same_stride(value.stride()):
            found.append(f"stride {value.stride()} instead of {self.stride}")
        return found

    def _same_stride(self, stride: tuple[int, ...]) -> bool:
        return same_stride(stride, self.stride, self.shape, self.exact_stride)

    def holds(self, value: Any) -> bool:
        return (
            type(value) is self.expected
            and value.dtype is self.dtype
            and value.shape == self.shape
            and value.device == self.device
            and value.requires_grad is self.requires_grad
            and value.layout is self.layout
            and value.is_conj() is self.conjugate
            and value.is_neg() is self.negative
            and (self.layout is not torch.strided or self._same_stride(value.stride()))
        )

    def summary(self) -> str:
        """``Parameter float32 (4, 4) stride (4, 1) cpu requires_grad``."""
        dtype = str(self.dtype).replace("torch.", "")
        parts = [self.expected.__name__, dtype, str(self.shape), f"stride {self.stride}", str(self.device)]
        return " ".join([*parts, *(["requires_grad"] if self.requires_grad else [])])

    def reason(self, value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return f"{self.source.describe()}: expected a tensor, got {show(value)}"
        return f"{self.source.describe()}: {', '.join(self.differences(value))}"

    def holds_plainly(self, value: Any) -> bool:
        """`holds`, without handing the questions to the ``__torch_function__`` of the tensor's class."""
        with DisableTorchFunctionSubclass():
            return self.holds(value)

    def failure(self, value: str, names: Names) -> str:
        function = self.expected.__torch_function__
        if self.expected is not torch.Tensor and function is not disabled_torch_function_impl:
            return f"not {names.constant(self.holds_plainly, 'holds_plainly')}({value})"
        dtype = names.constant(self.dtype, str(self.dtype).replace("torch.", ""))
        conditions = [
            f"type({value}) is not {names.constant(self.expected, self.expected.__name__)}",
            f"{value}.dtype is not {dtype}",
            f"{value}.shape != {self.shape!r}",
            f"{value}.device != {names.constant(self.device, str(self.device).replace(':', ''))}",
            f"{'not ' if self.requires_grad else ''}{value}.requires_grad",
        ]
        if self.layout is not torch.strided:
            layout = names.constant(self.layout, str(self.layout).replace("torch.", ""))
            return " or ".join([*conditions, f"{value}.layout is not {layout}"])
        if self.needs_exact_stride:
            conditions.append(f"{value}.stride() != {self.stride!r}")
        else:
            same = names.constant(same_stride, "same_stride")
            conditions.append(f"not {same}({value}.stride(), {self.stride!r}, {self.shape!r})")
        if self.dtype.is_complex:
            conditions.append(f"{'not ' if self.conjugate else ''}{value}.is_conj()")
        conditions.append(f"{'not ' if self.negative else ''}{value}.is_neg()")
        return " or ".join(conditions)


def same_stride(
    stride: tuple[int, ...], expected: tuple[int, ...], shape: tuple[int, ...], exact: bool = False
) -> bool:
    """Strides compared in the dimensions of more than one element; in none of a tensor without elements."""
    if exact or stride == expected:
        return stride == expected
    if 0 in shape:
        return True
    return all(one == other for one, other, size in zip(stride, expected, shape, strict=True) if size > 1)


@dataclass(frozen=True, slots=True)
class NonOverlappingGuard(Guard):
    """A tensor that shares no memory with another input: one of them is written. `OverlapCheck` checks all pairs."""

    expected: Source
    kind: ClassVar[str] = "overlap"

    def violation(self, args: Any, kwargs: Any) -> str | None:
        one, other = self.source.read(args, kwargs), self.expected.read(args, kwargs)
        return self.reason(one) if overlaps(one, other) else None

    def reason(self, value: Any) -> str:
        return f"{self.source.describe()}: shares memory with {self.expected.describe()}, which the program writes"


def overlaps(one: torch.Tensor, other: torch.Tensor) -> bool:
    """True when both may show the same memory: their storages are equal and their extents meet."""
    if one is other:
        return True
    if not is_alias_of(one, other):
        return False
    start, end = extent(one)
    other_start, other_end = extent(other)
    return start < other_end and other_start < end


def extent(tensor: torch.Tensor) -> tuple[Dimension, Dimension]:
    """First byte and the byte after the last one that the tensor shows of its storage."""
    offset = tensor.storage_offset()
    if tensor.numel() == 0:
        return offset, offset
    last: Dimension = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    item = tensor.element_size()
    return offset * item, (offset + last + 1) * item

"""What is checked of a tensor that is an input of the compiled program."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch

from thunder_core.guards.check import EQUAL, IS, TRUTH, Check, Comparison, Condition, holding, reading
from thunder_core.guards.guard import Guard, Key, show, type_name
from thunder_core.guards.sizes import STRIDES
from thunder_core.guards.source import PATH_ERRORS, Args, Kwargs, Names, Source
from thunder_core.ir.size import Size
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, disabled_torch_function_impl


def _row(name: str, expression: str, comparison: Comparison) -> Condition:
    """Something that is compared of every tensor; messages say ``shape (3, 4) instead of (2, 4)``."""

    def message(value: Any, expected: Any) -> str:
        return f"{name} {_text(reading(condition)(value))} instead of {_text(expected)}"

    condition = Condition(name, expression, comparison, message)
    return condition


def _text(value: Any) -> str:
    if isinstance(value, type):
        return type_name(value)
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)


def same_stride(stride: tuple[int, ...], expected: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Strides compared with those of a shape, in dimensions of more than one element; in none if it has no elements."""
    known, shape = expected
    if stride == known or 0 in shape:
        return True
    return all(one == other for one, other, size in zip(stride, known, shape, strict=True) if size > 1)


CLASS: Final = _row("type", "type({value})", IS)
DTYPE: Final = _row("dtype", "{value}.dtype", IS)
SHAPE: Final = _row("shape", "{value}.shape", EQUAL)
DEVICE: Final = _row("device", "{value}.device", EQUAL)
REQUIRES_GRAD: Final = _row("requires_grad", "{value}.requires_grad", TRUTH)
LAYOUT: Final = _row("layout", "{value}.layout", IS)
STRIDE: Final = _row("stride", "{value}.stride()", EQUAL)
STRIDE_IN_USE: Final = Condition(
    "stride",
    "{value}.stride()",
    Comparison("not {same_stride}({actual}, {expected})", (same_stride,)),
    lambda value, expected: f"stride {value.stride()} instead of {expected[0]}",
)
"""Strides that count in dimensions of more than one element; expected are strides and shape."""
CONJUGATE: Final = _row("is_conj", "{value}.is_conj()", TRUTH)
NEGATIVE: Final = _row("is_neg", "{value}.is_neg()", TRUTH)
"""Lazy conjugation and negation decide what is a view."""


NDIM: Final = _row("ndim", "{value}.ndim", EQUAL)


@functools.cache
def size_at(dimension: int) -> Condition:
    """The size of one dimension."""
    return _row(f"shape[{dimension}]", f"{{value}}.shape[{dimension}]", EQUAL)


def _constant_sizes(sizes: tuple[Size, ...]) -> list[tuple[Condition, Any]]:
    constant = [(size_at(index), size) for index, size in enumerate(sizes) if type(size) is int]
    return [(NDIM, len(sizes)), *constant]


@dataclass(frozen=True, slots=True, eq=False)
class TensorGuard(Guard):
    """Class and metadata of a tensor: rows that are checked together, and remembered by `TensorsMemo`.

    Attributes:
        conditions: the rows.
        expected: what each of them expects.
    """

    conditions: tuple[Condition, ...]
    expected: tuple[Any, ...]
    kind: ClassVar[str] = "tensor"

    @classmethod
    def of(
        cls,
        source: Source,
        tensor: torch.Tensor,
        *,
        exact_stride: bool = False,
        sizes: tuple[Size, ...] | None = None,
    ) -> TensorGuard:
        """The guard that ``tensor`` fulfils now.

        Args:
            exact_stride: strides count in dimensions of one element too.
            sizes: the shape, for a tensor with sizes that vary: a `thunder_core.guards.sizes.SizesGuard` has those, and
                the strides.
        """
        shape = tuple(tensor.shape)
        rows = [
            (CLASS, type(tensor)),
            (DTYPE, tensor.dtype),
            *([(SHAPE, shape)] if sizes is None else _constant_sizes(sizes)),
            (DEVICE, tensor.device),
            (REQUIRES_GRAD, tensor.requires_grad),
            (LAYOUT, tensor.layout),
        ]
        if tensor.layout is torch.strided and sizes is None:
            stride = tuple(tensor.stride())
            exact = exact_stride or all(size > 1 for size in shape)
            rows.append((STRIDE, stride) if exact else (STRIDE_IN_USE, (stride, shape)))
        if tensor.dtype.is_complex:
            rows.append((CONJUGATE, tensor.is_conj()))
        rows.append((NEGATIVE, tensor.is_neg()))
        conditions, expected = zip(*rows, strict=True)
        return cls(source, conditions, expected)

    def constant_sizes(self) -> list[int | None]:
        """What is expected of each size; None for one that varies."""
        held = dict(zip(self.conditions, self.expected, strict=True))
        if SHAPE in held:
            return list(held[SHAPE])
        return [held.get(size_at(index)) for index in range(held[NDIM])]

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> frozenset[int] | None:
        """The dimensions whose sizes are others in a call, or `STRIDES` where these alone differ; None for all else."""
        try:
            value = self.source.read(args, kwargs)
        except PATH_ERRORS:
            return None
        if not isinstance(value, torch.Tensor):
            return None
        rows = [
            row
            for row in zip(self.conditions, self.expected, strict=True)
            if not row[0].kind.startswith(("shape", "stride"))
        ]
        sizes = self.constant_sizes()
        conditions, expected = zip(*rows, strict=True)
        if not holding(conditions)(value, *expected) or value.ndim != len(sizes):
            return None
        pairs = enumerate(zip(sizes, value.shape, strict=True))
        differing = frozenset([index for index, (known, size) in pairs if known is not None and known != size])
        return differing if differing or self.holds(value) else frozenset({STRIDES})

    @property
    def varies(self) -> bool:
        """Whether sizes vary, and with them strides."""
        return NDIM in self.conditions

    @property
    def requires_grad(self) -> bool:
        """What is expected of ``requires_grad``."""
        return bool(self.expected[self.conditions.index(REQUIRES_GRAD)])

    def _checks(self) -> list[Check]:
        return [Check(self.source, *row) for row in zip(self.conditions, self.expected, strict=True)]

    def summary(self) -> str:
        """``Parameter float32 (4, 4) stride (4, 1) cpu requires_grad``."""
        held = {condition.kind: expected for condition, expected in zip(self.conditions, self.expected, strict=True)}
        stride = held.get("stride", ())
        stride = stride[0] if STRIDE_IN_USE in self.conditions else stride
        dtype = str(held["dtype"]).replace("torch.", "")
        known = [str(held["shape"]), f"stride {stride}"] if "shape" in held else [f"{held['ndim']}-d"]
        parts = [held["type"].__name__, dtype, *known, str(held["device"])]
        return " ".join([*parts, *(["requires_grad"] if held["requires_grad"] else [])])

    def remedy(self) -> str:
        return "pad it to a few shapes, with the same dtype, device, strides and requires_grad at each call"

    def holds(self, value: Any) -> bool:
        """Whether a value is such a tensor. Of a sparse tensor in place of a strided one this is an error.

        Raises:
            one of PATH_ERRORS: the value has no metadata.
        """
        return holding(self.conditions)(value, *self.expected)

    def holds_plainly(self, value: Any) -> bool:
        """`holds`, without handing the questions to the ``__torch_function__`` of the tensor's class."""
        with DisableTorchFunctionSubclass():
            return self.holds(value)

    def failure(self, value: str, names: Names) -> str:
        kind = self.expected[0]
        if kind is not torch.Tensor and kind.__torch_function__ is not disabled_torch_function_impl:
            return f"not {names.constant(self.holds_plainly, 'holds_plainly')}({value})"
        return " or ".join([check.failure(value, names) for check in self._checks()])

    def differences(self, value: Any) -> list[str]:
        """What differs; of a tensor of another class nothing else, and the strides only if nothing else does."""
        if not isinstance(value, torch.Tensor):
            return [f"expected a tensor, got {show(value)}"]
        rows = list(zip(self.conditions, self.expected, strict=True))
        for part in (rows[:1], [row for row in rows[1:] if row[0].kind != "stride"], rows):
            found = [row[0].message(value, row[1]) for row in part if not holding(row[:1])(value, row[1])]
            if found:
                return found
        return []

    def keys(self) -> Iterator[tuple[Key, Any]]:
        for check in self._checks():
            yield from check.keys()

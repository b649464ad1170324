"""The guard of a tensor that is an input of the compiled program: its class and metadata."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import torch

from thunder_core.checks.check import EQUAL, IS, TRUTH, Check, Comparison, Condition, compiled_reader, compiled_test
from thunder_core.checks.guard import DispatchKey, Guard, show, type_name
from thunder_core.checks.sizes import STRIDES
from thunder_core.checks.source import PATH_ERRORS, Args, Kwargs, Names, Source
from thunder_core.ir.size import Size
from thunder_core.private_names import is_missing
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass, TensorGuards, disabled_torch_function_impl


def _row(name: str, expression: str, comparison: Comparison) -> Condition:
    """A condition on metadata; the message is ``shape (3, 4) instead of (2, 4)``."""

    def message(value: Any, expected: Any) -> str:
        return f"{name} {_text(compiled_reader(condition)(value))} instead of {_text(expected)}"

    condition = Condition(name, expression, comparison, message)
    return condition


def _text(value: Any) -> str:
    if isinstance(value, type):
        return type_name(value)
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value)


def same_stride(stride: tuple[int, ...], expected: tuple[tuple[int, ...], tuple[int, ...]]) -> bool:
    """Whether strides are equal in the dimensions of more than one element; True for tensors without elements.

    Args:
        expected: strides and shape.
    """
    known, shape = expected
    if stride == known or 0 in shape:
        return True
    return all(one == other for one, other, size in zip(stride, known, shape, strict=True) if size > 1)


CLASS: Final = _row("type", "type({value})", IS)
_DTYPE: Final = _row("dtype", "{value}.dtype", IS)
SHAPE: Final = _row("shape", "{value}.shape", EQUAL)
DEVICE: Final = _row("device", "{value}.device", EQUAL)
_REQUIRES_GRAD: Final = _row("requires_grad", "{value}.requires_grad", TRUTH)
_LAYOUT: Final = _row("layout", "{value}.layout", IS)
_STRIDE: Final = _row("stride", "{value}.stride()", EQUAL)
_STRIDE_IN_USE: Final = Condition(
    "stride",
    "{value}.stride()",
    Comparison("not {same_stride}({actual}, {expected})", (same_stride,)),
    lambda value, expected: f"stride {value.stride()} instead of {expected[0]}",
)
"""Strides in the dimensions of more than one element; the expected value is strides and shape."""
_CONJUGATE: Final = _row("is_conj", "{value}.is_conj()", TRUTH)
NEGATIVE: Final = _row("is_neg", "{value}.is_neg()", TRUTH)
"""Lazy conjugation and negation determine which results are views."""


_NDIM: Final = _row("ndim", "{value}.ndim", EQUAL)


@functools.cache
def size_at(dimension: int) -> Condition:
    """The size of one dimension."""
    return _row(f"shape[{dimension}]", f"{{value}}.shape[{dimension}]", EQUAL)


ROWS: Final = {
    **{row.kind: row for row in (CLASS, _DTYPE, SHAPE, DEVICE, _REQUIRES_GRAD, _LAYOUT, _STRIDE, _NDIM)},
    **{row.kind: row for row in (_CONJUGATE, NEGATIVE)},
    "stride in use": _STRIDE_IN_USE,
}
"""The conditions by name, without those of single sizes (`size_at`)."""


def _constant_sizes(sizes: tuple[Size, ...]) -> list[tuple[Condition, Any]]:
    constant = [(size_at(index), size) for index, size in enumerate(sizes) if type(size) is int]
    return [(_NDIM, len(sizes)), *constant]


@dataclass(frozen=True, slots=True, eq=False)
class TensorGuard(Guard):
    """Class and metadata of a tensor: several conditions that are checked together, and cached by `TensorsMemo`.

    Attributes:
        conditions: the conditions.
        expected: the expected value of each.
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
        """The guard for the current metadata of a tensor.

        Args:
            exact_stride: compare strides also in dimensions of one element.
            sizes: the shape of a tensor with symbolic sizes. A `SizesGuard` checks these, and the strides.
        """
        shape = tuple(tensor.shape)
        rows = [
            (CLASS, type(tensor)),
            (_DTYPE, tensor.dtype),
            *([(SHAPE, shape)] if sizes is None else _constant_sizes(sizes)),
            (DEVICE, tensor.device),
            (_REQUIRES_GRAD, tensor.requires_grad),
            (_LAYOUT, tensor.layout),
        ]
        if tensor.layout is torch.strided and sizes is None:
            stride = tuple(tensor.stride())
            exact = exact_stride or all(size > 1 for size in shape)
            rows.append((_STRIDE, stride) if exact else (_STRIDE_IN_USE, (stride, shape)))
        if tensor.dtype.is_complex:
            rows.append((_CONJUGATE, tensor.is_conj()))
        rows.append((NEGATIVE, tensor.is_neg()))
        conditions, expected = zip(*rows, strict=True)
        return cls(source, conditions, expected)

    def constant_sizes(self) -> list[int | None]:
        """The expected sizes; None for symbolic ones."""
        held = dict(zip(self.conditions, self.expected, strict=True))
        if SHAPE in held:
            return list(held[SHAPE])
        return [held.get(size_at(index)) for index in range(held[_NDIM])]

    def differing_sizes(self, args: Args, kwargs: Kwargs) -> dict[Source, frozenset[int]] | None:
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
        if not compiled_test(conditions)(value, *expected) or value.ndim != len(sizes):
            return None
        pairs = enumerate(zip(sizes, value.shape, strict=True))
        differing = frozenset([index for index, (known, size) in pairs if known is not None and known != size])
        if not differing and self.holds(value):
            return {}
        return {self.source: differing or frozenset({STRIDES})}

    @property
    def varies(self) -> bool:
        """Whether sizes, and so strides, vary between calls."""
        return _NDIM in self.conditions

    @property
    def requires_grad(self) -> bool:
        """The expected value of ``requires_grad``."""
        return bool(self.expected[self.conditions.index(_REQUIRES_GRAD)])

    def _checks(self) -> list[Check]:
        return [Check(self.source, *row) for row in zip(self.conditions, self.expected, strict=True)]

    def summary(self) -> str:
        """``Parameter float32 (4, 4) stride (4, 1) cpu requires_grad``."""
        held = {condition.kind: expected for condition, expected in zip(self.conditions, self.expected, strict=True)}
        stride = held.get("stride", ())
        stride = stride[0] if _STRIDE_IN_USE in self.conditions else stride
        dtype = str(held["dtype"]).replace("torch.", "")
        known = [str(held["shape"]), f"stride {stride}"] if "shape" in held else [f"{held['ndim']}-d"]
        parts = [held["type"].__name__, dtype, *known, str(held["device"])]
        return " ".join([*parts, *(["requires_grad"] if held["requires_grad"] else [])])

    def remedy(self) -> str:
        return "pad it to a few shapes, with the same dtype, device, strides and requires_grad at each call"

    def holds(self, value: Any) -> bool:
        """Whether a value satisfies all conditions.

        Raises:
            one of PATH_ERRORS: the value is not a tensor, or a sparse tensor in place of a strided one.
        """
        return compiled_test(self.conditions)(value, *self.expected)

    def holds_plainly(self, value: Any) -> bool:
        """`holds`, without calls of the ``__torch_function__`` of the tensor's class."""
        with DisableTorchFunctionSubclass():
            return self.holds(value)

    def failure(self, value: str, names: Names) -> str:
        kind = self.expected[0]
        if kind is not torch.Tensor and kind.__torch_function__ is not disabled_torch_function_impl:
            return f"not {names.constant(self.holds_plainly, 'holds_plainly')}({value})"
        return " or ".join([check.failure(value, names) for check in self._checks()])

    def differences(self, value: Any) -> list[str]:
        """The differences: the class alone if it differs, and strides only if nothing else differs."""
        if not isinstance(value, torch.Tensor):
            return [f"expected a tensor, got {show(value)}"]
        rows = list(zip(self.conditions, self.expected, strict=True))
        for part in (rows[:1], [row for row in rows[1:] if row[0].kind != "stride"], rows):
            differences = [row[0].message(value, row[1]) for row in part if not compiled_test(row[:1])(value, row[1])]
            if differences:
                return differences
        return []

    def keys(self) -> Iterator[tuple[DispatchKey, Any]]:
        for check in self._checks():
            yield from check.keys()


# ---------------------------------------------------------------- the combined check of PyTorch


@functools.cache
def sees_requires_grad() -> bool:
    """Whether PyTorch's combined check compares ``requires_grad`` under `torch.no_grad`; not in all versions."""
    if is_missing(TensorGuards):
        return True
    with torch.no_grad():
        tensor = torch.empty(1, requires_grad=True)
        check = TensorGuards(tensor, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return not check(tensor.requires_grad_(False))


class TensorsMemo:
    """PyTorch's combined check of the metadata of tensors, as it was when a full check last passed."""

    __slots__ = ("_guards", "_varies", "check")

    def __init__(self, guards: Sequence[TensorGuard]) -> None:
        self._guards = guards
        self._varies = any(guard.varies for guard in guards)
        self.check: Callable[..., bool] = lambda *_: False

    def recheck(self, *tensors: torch.Tensor) -> bool:
        """Check each tensor by its guard; if all pass, `remember` them."""
        for guard, tensor in zip(self._guards, tensors, strict=True):
            if not guard.holds(tensor):
                return False
        self.remember(*tensors)
        return True

    def remember(self, *tensors: torch.Tensor) -> None:
        """Accept the current metadata of these tensors from now on.

        Does nothing if PyTorch has no combined check, or none for these: it refuses repeated objects.
        """
        if is_missing(TensorGuards) or len({id(tensor) for tensor in tensors}) < len(tensors):
            return
        if any(tensor.layout is not torch.strided for tensor in tensors):
            return
        if not self._varies:
            self.check = TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
            return
        sizes = [guard.constant_sizes() for guard in self._guards]
        pairs = zip(tensors, self._guards, strict=True)
        strides = [[None] * tensor.ndim if guard.varies else list(tensor.stride()) for tensor, guard in pairs]
        self.check = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check

"""Removal of casts to a dtype in which the value exists already."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Final

import torch

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.builder import Builder
from thunder_core.ir.geometry import end
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.autocast_rewrites import is_rearrangement
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.moved_storages import MovedStorages
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext

_MOST_VIEWS: Final = 8  # number of casts to look through, so that the pass is linear


@dataclass(frozen=True)
class DtypeRoundTrips(Transform):
    """Replaces a cast by an existing value that is equal bit by bit.

    A value exists in a dtype after a cast to it, and in the dtype from which it was cast without loss (such as bfloat16
    to float32). Casts of views that contain all elements are included if the same view of the value has the strides of
    the cast's result; a view of a part would keep the whole storage alive. Only the sign and payload of NaN may differ
    from eager.

    As in `CommonSubexpression`, values that the program returns, writes or protects remain separate tensors. In
    programs with a backward this also applies to values that equal an input, which the caller may write before backward
    runs.
    """

    name: ClassVar[str] = "dtype_round_trips"
    place: ClassVar[Place] = Place.AFTER_DIFFERENTIATION
    verified: ClassVar[bool] = False

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        aliases = Aliases.of(trace)
        fixed = aliases.fixed(context.protected)
        walk = _Walk(trace, fixed if context.phase is Phase.INFERENCE else fixed | aliases.given)
        for op in trace.symbols:
            walk.visit(op)
        return walk.result(self.name) if walk.moved_storages else trace


@dataclass
class _Walk:
    """One forward pass over the trace.

    Attributes:
        fixed: storages that are not changed.
        moved_storages: for removed casts, their storage and that of the value that replaces them.
        ops: the ops of the result.
    """

    trace: Trace
    fixed: frozenset[int]
    moved_storages: MovedStorages = field(default_factory=MovedStorages)
    ops: list[BoundSymbol] = field(default_factory=list)
    _values: dict[str, TensorProxy] = field(default_factory=dict)
    _known: dict[tuple[str, torch.dtype], TensorProxy] = field(default_factory=dict)
    _views: dict[str, BoundSymbol] = field(default_factory=dict)
    _shown: dict[tuple[str, str], TensorProxy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._builder = Builder.of(self.trace)

    def visit(self, op: BoundSymbol) -> None:
        """Add an operation, or replace its result by another value."""
        if self.moved_storages:
            op = self.moved_storages.op(op.map_arguments(self._value))
        if op.is_cast() and op.effects.pure and not op.is_recorded(self.trace.context):
            source, dtype = op.args
            value = self._existing(source, dtype, op.output)
            if value is not None:
                self._values[op.output.name] = value
                self.moved_storages.move(op.output, value)
                return
            self._known.setdefault((source.name, dtype), op.output)
            if is_lossless(source.dtype, dtype):
                self._known.setdefault((op.output.name, source.dtype), source)
        elif isinstance(op.output, TensorProxy) and is_rearrangement(op):
            self._views[op.output.name] = op
        self.ops.append(op)

    def result(self, name: str) -> Trace:
        """The trace with these operations."""
        output = map_leaves(self._value, self.trace.output)
        return without_dead_code(replace(self.trace.with_symbols(self.ops, name), output=output))

    def _existing(self, source: TensorProxy, dtype: torch.dtype, result: TensorProxy) -> TensorProxy | None:
        """A value with the elements, dtype and strides of ``result``, which is ``source`` cast to ``dtype``."""
        if (source.shape, source.stride) != (result.shape, result.stride):
            return None
        views: list[BoundSymbol] = []
        while True:
            value = self._known.get((source.name, dtype))
            if value is not None:
                break
            view = self._views.get(source.name)
            if view is None or len(views) == _MOST_VIEWS:
                return None
            views.append(view)
            (source,) = tensor_inputs_of(view)
        if not self._can_be(value, source, result) or not all(_is_within(view.output, source) for view in views):
            return None
        for view in reversed(views):
            value = self._shown.get((view.output.name, value.name)) or self._show(view, value)
        return value

    def _can_be(self, value: TensorProxy, source: TensorProxy, result: TensorProxy) -> bool:
        if result.storage in self.fixed or value.storage in self.fixed:
            return False
        if not all(type(size) is int for size in (*source.shape, *source.stride)):
            return False  # a comparison of symbolic sizes would add guards
        return value.geometry == source.geometry and value.requires_grad == result.requires_grad

    def _show(self, view: BoundSymbol, value: TensorProxy) -> TensorProxy:
        """The view of ``value`` that corresponds to ``view`` of another tensor with the same geometry."""
        shown: TensorProxy = view.output
        view_of_value = replace(shown, name=self._builder.name(shown.name), dtype=value.dtype, storage=value.storage)
        op = view.map_arguments(lambda leaf: value if isinstance(leaf, TensorProxy) else leaf)
        self.ops.append(replace(op, output=view_of_value))
        self._shown[shown.name, value.name] = view_of_value
        return view_of_value

    def _value(self, leaf: Any) -> Any:
        if not isinstance(leaf, TensorProxy):
            return leaf
        return self._values.get(leaf.name) or self.moved_storages.value(leaf)


def _is_within(view: TensorProxy, source: TensorProxy) -> bool:
    """Whether a view only reaches memory that a dense tensor in place of ``source`` would have."""
    last = end(view)
    if not are_constant((view.offset, last, source.offset, source.numel)):
        return False
    return bool(source.offset <= view.offset and last <= source.offset + source.numel)


@cache
def is_lossless(one: torch.dtype, other: torch.dtype) -> bool:
    """Whether casting ``one`` to ``other`` and back preserves all values, except for kinds of NaN."""
    if (
        one.is_complex
        or other.is_complex
        or torch.bool in (one, other)
        or one.is_floating_point != other.is_floating_point
    ):
        return False
    if one.is_floating_point:
        if one.itemsize == 1 or other.itemsize == 1:
            return False  # one-byte dtypes saturate, or have no infinities
        small, large = torch.finfo(one), torch.finfo(other)
        least = large.smallest_normal * large.eps <= small.smallest_normal * small.eps
        return large.eps <= small.eps and large.max >= small.max and least
    return torch.iinfo(one).min >= torch.iinfo(other).min and torch.iinfo(one).max <= torch.iinfo(other).max

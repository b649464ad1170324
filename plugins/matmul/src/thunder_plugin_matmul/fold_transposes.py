"""Removal of copies of transposed matrices that only matmuls read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.dead_code import without_dead_code
from thunder_core.passes.rewrite import Substitution
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_core.symbols.registry import registry

_PRODUCTS = frozenset({Tag.PRODUCT, Tag.LINEAR})


@dataclass(frozen=True)
class FoldTransposes(Transform):
    """Passes transposed matrices to matmuls as views instead of copies.

    BLAS reads matrices by rows or by columns. A copy is removed if all of its users are matmuls, or transposes that
    matmuls read, and if BLAS can read the original: one of its last two strides is 1. The copy of a transposed matmul
    is removed as well: ``(a @ b).t()`` is ``b.t() @ a.t()``.

    Rounding: BLAS may sum in another order.
    """

    name: ClassVar[str] = "fold_transposes"
    place: ClassVar[Place] = Place.AFTER_DIFFERENTIATION
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("common_subexpression",)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        folding = _Folding(trace, context.protected)
        if not folding.replaced:
            return trace
        ops = [part for index, op in enumerate(trace.symbols) for part in folding.replaced.get(index, (op,))]
        return without_dead_code(trace.with_symbols(ops, self.name))


class _Folding:
    """One pass over the trace. Users are identified by position; that of the output is None.

    Attributes:
        replaced: the replacement of the operation at a position.
    """

    def __init__(self, trace: Trace, protected: frozenset[str]) -> None:
        self.trace = trace
        self.substitution = Substitution(trace)
        self.pinned = Aliases.of(trace).pinned
        self.protected = protected
        self.replaced: dict[int, tuple[BoundSymbol, ...]] = {}
        self.definer: dict[str, BoundSymbol] = {}
        self.readers: dict[str, list[int | None]] = {}
        for index, op in enumerate(trace.symbols):
            self.definer.update((proxy.name, op) for proxy in op.outputs())
            for proxy in op.inputs():
                self.readers.setdefault(proxy.name, []).append(index)
        for proxy in iterate_proxies(trace.output):
            self.readers.setdefault(proxy.name, []).append(None)
        for index, op in enumerate(trace.symbols):
            if self._is_copy(op) and index not in self.replaced:
                self._fold(index, op)

    def _is_copy(self, op: BoundSymbol) -> bool:
        """Whether an operation copies the transpose of a matrix, or of a batch, to row-major memory."""
        if Tag.COPY not in op.symbol.tags or not op.effects.pure or op.is_recorded(self.trace.context):
            return False
        source, result = op.args[0], op.output
        if not isinstance(source, TensorProxy) or {source.storage, result.storage} & self.pinned or source.ndim < 2:
            return False
        fresh = source.storage != result.storage and source.dtype.is_floating_point
        return fresh and result.contiguous and _by_columns(source) and not {source.name, result.name} & self.protected

    def _fold(self, index: int, op: BoundSymbol) -> None:
        source, copy = op.args[0], op.output
        rewritten: dict[int, tuple[BoundSymbol, ...]] | None = self._without_copy(source, copy)
        if rewritten is None:
            rewritten = self._transposed_product(index, op)
        self.replaced.update(rewritten or {})

    def _without_copy(self, source: TensorProxy, copy: TensorProxy) -> dict[int, tuple[BoundSymbol, ...]] | None:
        """The users of a copy with the original in its place; None if one of them needs the copy."""
        rewritten: dict[int, tuple[BoundSymbol, ...]] = {}
        for position in self.readers.get(copy.name, ()):
            reader = None if position is None else self.trace.symbols[position]
            if position is None or reader is None:
                return None
            if not _is_transpose(reader, copy):
                ops = self._product(position, copy, source, rewritten)
                if ops is None:
                    return None
                rewritten[position] = ops
                continue
            symbol, args, kwargs = registry.resolve(torch.transpose, (source, -2, -1), {})
            shape, stride = _exchanged(source.shape), _exchanged(source.stride)
            view = replace(reader.output, shape=shape, stride=stride, storage=source.storage, offset=source.offset)
            rewritten[position] = (replace(reader, symbol=symbol, args=args, kwargs=kwargs, output=view),)
            for later in self.readers.get(view.name, ()):
                ops = None if later is None else self._product(later, reader.output, view, rewritten)
                if later is None or ops is None:
                    return None
                rewritten[later] = ops
        return rewritten

    def _product(
        self, position: int, old: TensorProxy, new: TensorProxy, rewritten: dict[int, tuple[BoundSymbol, ...]]
    ) -> tuple[BoundSymbol, ...] | None:
        """The matmul at a position with another operand; None if it is not a matmul, or would copy the operand itself.

        Its other operand may have been replaced already.
        """
        op = (rewritten.get(position) or self.replaced.get(position) or self.trace.symbols[position : position + 1])[0]
        if op.symbol.tags.isdisjoint(_PRODUCTS) or op.kwargs or len(op.args) < 2:
            return None
        one, other = op.args[:2]
        fits = one.ndim == other.ndim <= 3 or (other.ndim == 2 and one != old)
        if not fits or old in op.args[2:] or not op.effects.pure or op.is_recorded(self.trace.context):
            return None
        args = tuple([new if item == old else item for item in op.args])
        ops = self.substitution.ops_of(op.symbol.target, args, op.output, op)
        return ops if ops is not None and len(ops) == 1 else None

    def _transposed_product(self, index: int, op: BoundSymbol) -> dict[int, tuple[BoundSymbol, ...]] | None:
        """The matmul of the transposes of two matrices, for a copy of their transposed matmul."""
        source = op.args[0]
        view = self.definer.get(source.name)
        if view is None or self.readers[source.name] != [index] or not _is_transpose(view, *view.args[:1]):
            return None
        product = self.definer.get(view.args[0].name)
        if product is None or Tag.PRODUCT not in product.symbol.tags or len(self.readers[view.args[0].name]) != 1:
            return None
        if product.kwargs or not product.effects.pure or any(item.ndim != 2 for item in product.args):
            return None
        ops = self.substitution.ops_of(_product_of_transposes, product.args, op.output, op)
        return None if ops is None else {index: ops}


def _by_columns(matrix: TensorProxy) -> bool:
    """Whether BLAS can read the matrices without a copy, column by column."""
    rows, step = matrix.shape[-2], matrix.stride[-1]
    if not are_constant((rows, step, matrix.shape[-1])):
        return False
    return matrix.stride[-2] == 1 and step >= max(rows, 2) and matrix.shape[-1] > 1


def _is_transpose(op: BoundSymbol, source: Any) -> bool:
    """Whether an operation is the view of ``source`` with the last two dimensions transposed."""
    view = op.output
    if not isinstance(view, TensorProxy) or not isinstance(source, TensorProxy) or op.args[:1] != (source,):
        return False
    if len(op.inputs()) != 1 or not op.effects.pure or view.storage != source.storage or source.ndim < 2:
        return False
    exchanged = _exchanged(source.shape), _exchanged(source.stride), source.offset
    return view.geometry == exchanged and view.dtype is source.dtype


def _exchanged(numbers: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*numbers[:-2], numbers[-1], numbers[-2])


def _product_of_transposes(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(torch.t(b), torch.t(a))

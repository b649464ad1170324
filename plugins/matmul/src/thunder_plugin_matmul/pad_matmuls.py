"""Padding of matrices whose rows are not aligned, such as those of a vocabulary of 50,257 words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final, TypeGuard

import torch
import torch.nn.functional as F

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Match, Rule, Substitution, rewrite
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_plugin_matmul.widen_products import HALF

_DEVICE: Final = "cuda"
"""The type of the devices whose matmuls were measured."""

_STEP: Final = 8
"""Elements of 16 bits in the 16 bytes that tensor cores load at once."""

_RATES: Final = {1: 96e12, 2: 255e12, 4: 450e12, 8: 660e12}
"""Operations a second of matmuls by the common divisor, up to 8, of the sizes of their rows.

Measured on an H200 with 8,192 x 1,024 x 50,257 (1), x 30,522 (2) and x 50,264 (8); the one for 4 is between them.
"""
_BYTES: Final = 3.5e12
"""Bytes a second of copies there."""


@dataclass(frozen=True)
class PadMatmuls(Transform):
    """Pads the operands of large float16 and bfloat16 matmuls on a GPU with zeros, so that their rows are aligned.

    cuBLAS has kernels for tensor cores that load 16 bytes at once. If the size of rows is not a multiple of 8 elements,
    it uses others: the three matmuls of a language model with 50,257 words take 7 x as long, with 30,522 words 2.8 x.
    The zeros are written by the operations that compute the operands, if those are fused, and the following ones read
    the part of the result without the padding.

    A matmul is changed if the estimated time that it saves is more than twice that of copying what is padded.

    Rounding: BLAS may sum in another order.
    """

    name: ClassVar[str] = "pad_matmuls"
    place: ClassVar[Place] = Place.AFTER_DIFFERENTIATION
    verified: ClassVar[bool] = False
    before: ClassVar[tuple[str, ...]] = ("common_subexpression",)
    after: ClassVar[tuple[str, ...]] = ("fold_transposes",)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        substitution = Substitution(trace)

        def pattern(op: BoundSymbol) -> Iterator[_Product]:
            product = _product(op, trace)
            if product is not None and op.output.name not in context.protected and product.is_worth_padding():
                yield product

        def replacement(product: _Product) -> tuple[BoundSymbol, ...] | None:
            (op,) = product.ops
            one, other = product.one, product.other
            transposed = one.transposed, other.transposed
            args = (one.matrix, other.matrix, product.bias, transposed, product.padding, tuple(op.output.shape))
            return substitution.ops_of(_padded_product, args, op.output, op)

        return rewrite(trace, [Rule(pattern, replacement)], self.name)


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of a matmul.

    Attributes:
        matrix: a contiguous tensor; its dimensions but the last are together those of rows.
        transposed: whether the operand is the transpose of this matrix.
    """

    matrix: TensorProxy
    transposed: bool

    @property
    def stored(self) -> tuple[int, int]:
        """The rows and columns of the matrix in memory."""
        columns = int(self.matrix.shape[-1])
        return int(self.matrix.numel) // columns, columns

    @property
    def sizes(self) -> tuple[int, int]:
        """The rows and columns of the operand."""
        return self.stored[::-1] if self.transposed else self.stored


@dataclass(frozen=True, slots=True)
class _Product(Match):
    """The matmul of two matrices, plus a vector if ``bias`` is not None."""

    one: _Operand
    other: _Operand
    bias: TensorProxy | None

    @property
    def padding(self) -> tuple[int, int, int]:
        """Zeros to add to the rows of the first, its columns and the rows of the second, and the columns of the second.

        Kernels load along rows in memory, so that only these must be aligned.
        """
        (rows, inner), columns = self.one.sizes, self.other.sizes[1]
        inner_is_loaded = not self.one.transposed or self.other.transposed
        return _missing(rows) * self.one.transposed, _missing(inner) * inner_is_loaded, _missing(columns)

    def is_worth_padding(self) -> bool:
        """Whether padding saves time, by an estimate."""
        rows, inner, columns = self.padding
        if not rows and not inner and not columns:
            return False
        moved = 0
        for moves, (length, width) in (
            (rows or inner, self.one.sizes),
            (inner or columns, self.other.sizes),
            (rows or columns, (self.one.sizes[0], self.other.sizes[1])),
        ):
            moved += 2 * 2 * length * width if moves else 0  # elements of 2 bytes are read and written
        aligned = min(_alignment(size) for size in (self.one.stored[1], self.other.stored[1], self.other.sizes[1]))
        operations = 2 * self.one.sizes[0] * self.one.sizes[1] * self.other.sizes[1]
        return operations * (1 / _RATES[aligned] - 1 / _RATES[_STEP]) > 2 * moved / _BYTES


def _missing(size: int) -> int:
    return -size % _STEP


def _alignment(size: int) -> int:
    return next(step for step in (8, 4, 2, 1) if size % step == 0)


def _product(op: BoundSymbol, trace: Trace) -> _Product | None:
    """The matmul of two matrices on a GPU that an operation computes; None for others.

    A stack of matrices that is multiplied by one matrix is one matrix of all their rows.
    """
    tags = op.symbol.tags
    if tags.isdisjoint({Tag.PRODUCT, Tag.LINEAR}) or not op.effects.pure or op.kwargs or op.is_recorded(trace.context):
        return None
    one, other, bias = op.args if len(op.args) == 3 else (*op.args, None)
    tensors = [one, other, op.output] if bias is None else [one, other, op.output, bias]
    if (len(op.args) > 2 and Tag.LINEAR not in tags) or not all(map(_is_half, tensors)):
        return None
    if other.ndim != 2 or one.ndim < 2 or len({tensor.dtype for tensor in tensors}) > 1:
        return None
    first, second = _operand(one, trace), _operand(other, trace)
    if first is None or second is None or (first.transposed and one.ndim > 2):
        return None
    if Tag.LINEAR in tags:
        second = _Operand(second.matrix, not second.transposed)
    return _Product((op,), first, second, bias)


def _is_half(value: object) -> TypeGuard[TensorProxy]:
    if not isinstance(value, TensorProxy) or value.dtype not in HALF or value.device.type != _DEVICE:
        return False
    return are_constant((*value.shape, *value.stride)) and value.numel > 0


def _operand(value: TensorProxy, trace: Trace) -> _Operand | None:
    """The tensor of which ``value`` is a view with its rows, or its columns, in order; None if there is none.

    Views of one tensor have the same one, so that it is padded once.
    """
    transposed, matrix = False, None
    while True:
        if value.contiguous:
            matrix = _Operand(value, transposed)
        producer = trace.producer(value.name)
        if producer is None or not producer.is_view() or producer.is_recorded(trace.context):
            return matrix
        sources = tensor_inputs_of(producer)
        if len(sources) != 1 or sources[0].dtype is not value.dtype:
            return matrix
        (source,) = sources
        if source.ndim == value.ndim == 2 and source.geometry == (value.shape[::-1], value.stride[::-1], value.offset):
            transposed = not transposed
        elif not (_has_same_rows(source, value) and source.contiguous and value.contiguous):
            return matrix
        value = source


def _has_same_rows(one: TensorProxy, other: TensorProxy) -> bool:
    return bool(one.shape and other.shape) and one.shape[-1] == other.shape[-1] and one.numel == other.numel


def _padded_product(
    one: torch.Tensor,
    other: torch.Tensor,
    bias: torch.Tensor | None,
    transposed: tuple[bool, bool],
    padding: tuple[int, int, int],
    shape: tuple[int, ...],
) -> torch.Tensor:
    """The matmul on padded matrices.

    Args:
        transposed: whether the operands are the transposes of the matrices.
        padding: as `_Product.padding`.
        shape: that of the result.
    """
    (one_transposed, other_transposed), (rows, inner, columns) = transposed, padding
    one = _pad(one, *((inner, rows) if one_transposed else (rows, inner)))
    other = _pad(other, *((columns, inner) if other_transposed else (inner, columns)))
    one = one.t() if one_transposed else one
    if bias is not None or other_transposed:
        bias = F.pad(bias, (0, columns)) if bias is not None and columns else bias
        result = F.linear(one, other if other_transposed else other.t(), bias)
    else:
        result = torch.mm(one, other)
    if rows or columns:
        result = result[: result.shape[0] - rows, : result.shape[1] - columns]
        result = result.clone(memory_format=torch.contiguous_format)
    return result.reshape(shape)


def _pad(matrix: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """The matrix with zeros below and to the right."""
    if columns:
        matrix = F.pad(matrix, (0, columns))
    matrix = matrix.reshape(-1, matrix.shape[-1])
    return F.pad(matrix, (0, 0, 0, rows)) if rows else matrix

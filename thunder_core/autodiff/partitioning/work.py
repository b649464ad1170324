"""The cost class of an op, by the amount of work it does."""

from __future__ import annotations

import enum
from functools import cache
from typing import Any, Final

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.pytorch_internals import OpOverload, VariableFunctions


class Work(enum.IntEnum):
    """The cost class of an op, derived from its tags, effects and types."""

    VIEW = 0  # its results share the storage of its arguments
    ELEMENTWISE = 1  # copies, creates or casts elements, or computes each from a few others
    PASS = 2  # reads its arguments a few times: reductions, normalizations, indexing
    CONTRACTION = 3  # computes more than it reads; also every op without a known cost class
    ONCE = 4  # never recomputed: random, with effects, of unknown code, or with results that are not tensors


_WORK_OF_TAGS: Final = (
    (Work.ONCE, frozenset({Tag.HIGHER_ORDER, Tag.LOCAL})),
    (Work.CONTRACTION, frozenset({Tag.MATMUL, Tag.ATTENTION})),
    (Work.PASS, frozenset({Tag.REDUCTION, Tag.NORMALIZATION, Tag.INDEXING, Tag.LOSS})),
    (Work.ELEMENTWISE, frozenset({Tag.ELEMENTWISE, Tag.SHAPE, Tag.CREATION, Tag.COPY, Tag.CAST})),
)

# Operators whose cost class does not follow from the tags of symbols or of PyTorch's operators.
_FUNCTIONS: Final = {
    torch.Tensor.type_as: Work.ELEMENTWISE,
    torch.nn.functional.glu: Work.ELEMENTWISE,
    torch.cumsum: Work.PASS,
    torch.log_softmax: Work.PASS,
    torch.softmax: Work.PASS,
}
_MOVING_OPERATORS: Final = frozenset(
    getattr(torch.ops.aten, name, None)
    for name in (
        "_to_copy", "_unsafe_view", "as_strided_scatter", "cat", "constant_pad_nd", "copy", "diagonal_scatter",
        "empty_like", "flip", "full_like", "lift_fresh_copy", "one_hot", "ones_like", "repeat", "roll",
        "select_scatter", "slice_scatter", "stack", "tril", "triu", "zeros_like",
    )
)  # fmt: skip
_PASSING_OPERATORS: Final = frozenset(
    getattr(torch.ops.aten, name, None)
    for name in (
        "_fused_rms_norm", "_log_softmax", "_native_batch_norm_legit", "_safe_softmax", "_softmax", "native_batch_norm",
        "nll_loss_forward",
    )
)  # fmt: skip


def fresh_outputs(op: BoundSymbol) -> list[TensorProxy]:
    """The results of an op that are tensors in newly allocated storages."""
    shared = {proxy.storage for proxy in tensor_inputs_of(op)}
    return [proxy for proxy in tensor_outputs_of(op) if proxy.storage not in shared]


def work_of(op: BoundSymbol) -> Work:
    """The cost class of an op."""
    if Tag.REPEATED in op.symbol.tags:
        return Work.CONTRACTION
    if not op.effects.pure or not all(isinstance(proxy, TensorProxy) for proxy in op.outputs()):
        return Work.ONCE
    work = _work_of_symbol(op.symbol)
    if work is Work.ONCE:
        return work
    if not tensor_inputs_of(op):
        return Work.ELEMENTWISE  # a factory function: it creates elements without reading any
    return work if fresh_outputs(op) else Work.VIEW


@cache
def _contractions() -> frozenset[Any]:
    """PyTorch's operators that compute more than they move: those that its FLOP counter covers."""
    from torch.utils.flop_counter import flop_registry

    return frozenset(flop_registry)


def _work_of_symbol(symbol: Symbol) -> Work:
    """The cost class of a symbol, if its calls are pure and return new tensors."""
    for work, tags in _WORK_OF_TAGS:
        if not tags.isdisjoint(symbol.tags):
            return work
    target = symbol.target
    if target in _FUNCTIONS:
        return _FUNCTIONS[target]
    operator = operator_of(target)
    return Work.CONTRACTION if operator is None else _work_of_operator(operator)


def operator_of(target: Any) -> OpOverload | None:
    """The ATen operator that a torch function was generated from, or one of its overloads, which have equal tags."""
    if isinstance(target, OpOverload):
        return target
    name = getattr(target, "__name__", "")
    if getattr(VariableFunctions, name, None) is not target or not hasattr(torch.ops.aten, name):
        return None
    packet = getattr(torch.ops.aten, name)
    overload: OpOverload = getattr(packet, packet.overloads()[0])
    return overload


def _work_of_operator(operator: OpOverload) -> Work:
    packet, tags = operator.overloadpacket, operator.tags
    if torch.Tag.pointwise in tags or packet in _MOVING_OPERATORS:
        return Work.ELEMENTWISE
    if packet in _contractions():
        return Work.CONTRACTION
    known = packet in _PASSING_OPERATORS or torch.Tag.reduction in tags or torch.Tag.core in tags
    return Work.PASS if known else Work.CONTRACTION

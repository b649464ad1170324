"""How much a line of a trace does."""

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
    """How much a line does, as far as its tags, its effects and its types tell."""

    VIEW = 0  # its results lie in memory of its arguments
    ELEMENTWISE = 1  # moves, makes or converts elements, or computes each from a few others
    PASS = 2  # reads its arguments a few times: reductions, normalizations, indexing
    CONTRACTION = 3  # computes more than it reads; and everything of which nothing is known
    ONCE = 4  # never again: random, with effects, of unknown code, or with results that are no tensors


_WORK_OF_TAGS: Final = (
    (Work.ONCE, frozenset({Tag.HIGHER_ORDER, Tag.LOCAL})),
    (Work.CONTRACTION, frozenset({Tag.MATMUL, Tag.ATTENTION})),
    (Work.PASS, frozenset({Tag.REDUCTION, Tag.NORMALIZATION, Tag.INDEXING, Tag.LOSS})),
    (Work.ELEMENTWISE, frozenset({Tag.ELEMENTWISE, Tag.SHAPE, Tag.CREATION})),
)

# What the tags of symbols and of PyTorch's operators do not tell.
_FUNCTIONS: Final = {
    torch.Tensor.contiguous: Work.ELEMENTWISE,
    torch.Tensor.to: Work.ELEMENTWISE,
    torch.Tensor.type_as: Work.ELEMENTWISE,
    torch.clone: Work.ELEMENTWISE,
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


def fresh_outputs(line: BoundSymbol) -> list[TensorProxy]:
    """The tensors that a line defines in memory of their own."""
    shared = {proxy.storage for proxy in tensor_inputs_of(line)}
    return [proxy for proxy in tensor_outputs_of(line) if proxy.storage not in shared]


def work_of(line: BoundSymbol) -> Work:
    """How much the line does."""
    if Tag.REPEATED in line.symbol.tags:
        return Work.CONTRACTION
    if not line.effects.pure or not all(isinstance(proxy, TensorProxy) for proxy in line.outputs()):
        return Work.ONCE
    work = _work_of_symbol(line.symbol)
    if work is Work.ONCE:
        return work
    if not tensor_inputs_of(line):
        return Work.ELEMENTWISE  # it makes elements out of nothing
    return work if fresh_outputs(line) else Work.VIEW


@cache
def _contractions() -> frozenset[Any]:
    """PyTorch's operators that compute more than they move: those whose operations it counts."""
    from torch.utils.flop_counter import flop_registry

    return frozenset(flop_registry)


def _work_of_symbol(symbol: Symbol) -> Work:
    """How much a symbol does, if its calls are pure and make new tensors."""
    for work, tags in _WORK_OF_TAGS:
        if not tags.isdisjoint(symbol.tags):
            return work
    target = symbol.target
    if target in _FUNCTIONS:
        return _FUNCTIONS[target]
    operator = _operator(target)
    return Work.CONTRACTION if operator is None else _work_of_operator(operator)


def _operator(target: Any) -> OpOverload | None:
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

"""Results of random ops that follow from another result of the op, so that backward can compute them again.

A random op runs once. But a tensor after dropout is the tensor before it times the mask and a scale; where backward
needs the mask and the tensor before dropout anyway, as it does after a softmax or an activation, there is no need to
save the tensor after it, too. While a partition is chosen, the joint trace has a formula for such a result; the forward
trace has the op's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import torch

from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.partitioning.work import operator_of
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.symbols.registry import registry


def with_formulas(joint: Joint) -> Joint:
    """The joint trace with a formula after each random op that has one, if backward reads the op's other results."""
    ops = joint.trace.symbols
    read = {proxy.name for op in ops[joint.backward_start :] for proxy in op.inputs()}
    found = {index: _formula(op, read) for index, op in enumerate(ops[: joint.backward_start])}
    if not any(found.values()):
        return joint
    builder = Builder.of(joint.trace)
    new: list[BoundSymbol] = []
    formulas: set[int] = set()
    for index, op in enumerate(ops):
        formula = found.get(index)
        if formula is None:
            new.append(op)
            continue
        result, *others = op.output
        unread = replace(result, name=builder.name(f"{result.name}_random"), storage=builder.new_storage())
        formulas.add(len(new) + 1)
        new += (replace(op, output=(unread, *others)), formula)
    trace = replace(joint.trace, symbols=tuple(new))
    start = joint.backward_start + len(formulas)
    return replace(joint, trace=trace, backward_start=start, formulas=frozenset(formulas))


def without_formulas(joint: Joint, positions: Sequence[int]) -> list[BoundSymbol]:
    """The ops at ``positions`` of the trace of `with_formulas`, without formulas: random ops have their own results."""
    ops = joint.trace.symbols
    return [
        replace(ops[index], output=(ops[index + 1].output, *ops[index].output[1:]))
        if index + 1 in joint.formulas
        else ops[index]
        for index in positions
        if index not in joint.formulas
    ]


def _formula(op: BoundSymbol, read: set[str]) -> BoundSymbol | None:
    """The op that computes the first result of a random one from its arguments and its other results."""
    operator = operator_of(op.symbol.target)
    return _FORMULAS[operator](op, read) if operator in _FORMULAS else None


def _of_dropout(op: BoundSymbol, read: set[str]) -> BoundSymbol | None:
    """``tensor * mask / (1 - p)``, by the operator that scales the cotangent so.

    CUDA kernels compute both in float32 and round once. On a CPU, dropout in low precision rounds the scale, too.
    """
    if len(op.args) != 3 or op.args[2] is not True or not 0 < op.args[1] < 1:
        return None
    tensor, probability, _ = op.args
    result, mask = op.output
    exact = result.device.type == "cuda" or result.dtype in (torch.float32, torch.float64)
    if mask.name not in read or not tensor.stride == result.stride == mask.stride or not exact:
        return None
    symbol = registry.symbol_named("torch.ops.aten.native_dropout_backward.default")
    return BoundSymbol(
        symbol, (tensor, mask, 1 / (1 - probability)), {}, result, context=op.context, location=op.location
    )


_FORMULAS: Final[dict[object, Callable[[BoundSymbol, set[str]], BoundSymbol | None]]] = {
    torch.ops.aten.native_dropout.default: _of_dropout,
}

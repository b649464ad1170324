"""Leaves of autograd that a program makes of its own values, by ``requires_grad_``.

Libraries do this before checkpoint regions of frozen layers: PyTorch's reentrant regions need an input that requires
grad. The gradient of such a leaf accumulates in its ``grad``, which nobody reads if the tensor does not leave the
program. A functional trace can then express the program without the leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of, tensors_of
from thunder_core.ir.effects import PURE
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Pass, PassContext
from thunder_core.symbols.opaque import SETS_REQUIRES_GRAD
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class InnerLeaves(Pass[Trace]):
    """Replaces calls of ``requires_grad_`` by views, if that changes no gradient and no result of the program.

    The call makes a leaf of a value that is computed in the program, does not leave it, and is neither written nor
    given a hook afterwards. All results that require grad depend on an input that does.
    """

    name: ClassVar[str] = "InnerLeaves"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.ACQUIRED})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        leaves = {index for index, op in enumerate(trace.symbols) if makes_leaf(op)}
        if not leaves or not _invisible(trace, leaves) or not _results_depend_on_inputs(trace, leaves):
            return trace
        ops = [_view(op) if index in leaves else op for index, op in enumerate(trace.symbols)]
        return trace.with_symbols(ops, self.name)


def makes_leaf(op: BoundSymbol) -> bool:
    """Whether the op makes a leaf that requires grad of a tensor that does not."""
    if op.symbol.target not in SETS_REQUIRES_GRAD:
        return False
    before, after = tensor_inputs_of(op), tensor_outputs_of(op)
    return len(before) == len(after) == 1 and after[0].requires_grad and not before[0].requires_grad


def _invisible(trace: Trace, leaves: set[int]) -> bool:
    """Whether nothing but pure ops of this trace uses the leaves' memory, and no other op changes autograd's state."""
    outside = (*trace.inputs, *iterate_proxies(trace.output))
    memory = {tensor_inputs_of(trace.symbols[index])[0].storage for index in leaves}
    if not memory.isdisjoint(proxy.storage for proxy in outside if isinstance(proxy, TensorProxy)):
        return False
    first = min(leaves)
    for program in trace.programs():
        for index, op in enumerate(program.symbols):
            if program is trace and index in leaves:
                continue
            if not op.symbol.tags.isdisjoint({Tag.AS_RECORDED, Tag.HOOK}):
                return False
            late = program is not trace or index > first
            written = {proxy.storage for proxy in tensors_of(op) if proxy.name in op.effects.mutates}
            if late and not memory.isdisjoint(written):
                return False
    return True


def _results_depend_on_inputs(trace: Trace, leaves: set[int]) -> bool:
    """Whether each result that requires grad depends on an input that does."""
    dependent = {proxy.name for proxy in trace.inputs if isinstance(proxy, TensorProxy) and proxy.requires_grad}
    for index, op in enumerate(trace.symbols):
        if index not in leaves and any(proxy.name in dependent for proxy in op.inputs()):
            dependent.update(proxy.name for proxy in tensor_outputs_of(op) if proxy.requires_grad)
    results = [proxy for proxy in iterate_proxies(trace.output) if isinstance(proxy, TensorProxy)]
    return all(proxy.name in dependent for proxy in results if proxy.requires_grad)


def _view(op: BoundSymbol) -> BoundSymbol:
    (tensor,), (result,) = tensor_inputs_of(op), tensor_outputs_of(op)
    view_as = registry.symbol_of(torch.Tensor.view_as)
    return replace(op, symbol=view_as, args=(tensor, tensor), kwargs={}, output=result, effects=PURE)

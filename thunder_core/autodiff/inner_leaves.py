"""Leaves of autograd that a program makes of its own values, by ``requires_grad_``.

Libraries do this before checkpoint regions of frozen layers: PyTorch's reentrant regions need an input that requires
grad. The gradient of such a leaf accumulates in its ``grad``, which nobody reads if the tensor does not leave the
program. A functional trace can then express the program without the leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, TypeGuard

import torch

from thunder_core.ir.bound_symbol import (
    BoundSymbol,
    tensor_inputs_of,
    tensor_outputs_of,
    tensors_written_by,
)
from thunder_core.ir.effects import PURE
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace, bodies_of
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Pass, PassContext
from thunder_core.symbols.checkpointing import CHECKPOINT
from thunder_core.symbols.opaque import SETS_REQUIRES_GRAD
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class InnerLeaves(Pass[Trace]):
    """Replaces calls of ``requires_grad_`` by views, if that changes no gradient and no result of the program.

    The call makes a leaf of a value that is computed in the program, or in a checkpoint region. The value does not
    leave the program, and is neither written nor given a hook afterwards. All results that require grad depend on an
    input that does.
    """

    name: ClassVar[str] = "InnerLeaves"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.ACQUIRED})

    def run(self, trace: Trace, context: PassContext) -> Trace:
        memory = _memory(trace)
        returned = {proxy.storage for proxy in iterate_proxies(trace.output) if _is_tensor(proxy)}
        if memory is None or not memory.isdisjoint(returned) or not _results_depend_on_inputs(trace):
            return trace
        return _without_leaves(trace)


def makes_leaves(trace: Trace) -> bool:
    """Whether an op of the trace, or of a body, makes a leaf that requires grad of a tensor that does not."""
    return any(_makes_leaf(op) for program in trace.programs() for op in program.symbols)


def _makes_leaf(op: BoundSymbol) -> bool:
    if op.symbol.target not in SETS_REQUIRES_GRAD:
        return False
    before, after = tensor_inputs_of(op), tensor_outputs_of(op)
    return len(before) == len(after) == 1 and after[0].requires_grad and not before[0].requires_grad


def _memory(trace: Trace) -> frozenset[int] | None:
    """The storages of the leaves that the trace and its regions make; None if one is visible, other than as a result.

    A region may return a leaf, which is one of the trace around it then, too.
    """
    memory: set[int] = set()
    for op in trace.symbols:
        if _makes_leaf(op):
            memory.add(tensor_inputs_of(op)[0].storage)
            continue
        for body in bodies_of(op):
            inner = _memory(body)
            if inner is None or (op.symbol is not CHECKPOINT and makes_leaves(body)):
                return None
            pairs = zip(body.output, op.outputs(), strict=True) if inner else ()
            memory.update([outer.storage for one, outer in pairs if one.storage in inner and _is_tensor(outer)])
        if not op.symbol.tags.isdisjoint({Tag.AS_RECORDED, Tag.HOOK}):  # its gradient may be read or changed
            return None
        if not memory.isdisjoint(proxy.storage for proxy in tensors_written_by(op)):
            return None
    given = {proxy.storage for proxy in trace.inputs if _is_tensor(proxy)}
    return frozenset(memory) if memory.isdisjoint(given) else None


def _is_tensor(value: Proxy) -> TypeGuard[TensorProxy]:
    return isinstance(value, TensorProxy)


def _results_depend_on_inputs(trace: Trace) -> bool:
    """Whether each result that requires grad depends on an input that does."""
    dependent = {proxy.name for proxy in trace.inputs if _is_tensor(proxy) and proxy.requires_grad}
    for op in trace.symbols:
        if not _makes_leaf(op) and any(proxy.name in dependent for proxy in op.inputs()):
            dependent.update(proxy.name for proxy in tensor_outputs_of(op) if proxy.requires_grad)
    results = [proxy for proxy in iterate_proxies(trace.output) if _is_tensor(proxy)]
    return all(proxy.name in dependent for proxy in results if proxy.requires_grad)


def _without_leaves(trace: Trace) -> Trace:
    def changed(op: BoundSymbol) -> BoundSymbol:
        if _makes_leaf(op):
            (tensor,), (result,) = tensor_inputs_of(op), tensor_outputs_of(op)
            view_as = registry.symbol_of(torch.Tensor.view_as)
            return replace(op, symbol=view_as, args=(tensor, tensor), kwargs={}, output=result, effects=PURE)
        if op.symbol is not CHECKPOINT or not makes_leaves(op.args[0]):
            return op
        body, *free = op.args
        return replace(op, args=(_without_leaves(body), *free))

    return trace.with_symbols([changed(op) for op in trace.symbols], InnerLeaves.name)

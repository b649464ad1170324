"""Inner leaves: tensors that a program computes and turns into leaves of autograd with ``requires_grad_``.

Libraries call it before checkpoint regions of frozen layers, because a reentrant region of PyTorch needs an input that
requires grad. Backward accumulates the gradient of such a leaf in its ``grad``, which no code can read if the program
does not return or store the tensor. A functional trace can then express the program without the leaf.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import ClassVar, Final, TypeGuard

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
from thunder_core.ir.trace import Stage, Trace, bodies_of, programs_of
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.checkpoint_regions import with_changed_bodies
from thunder_core.symbols.checkpointing import CHECKPOINT
from thunder_core.symbols.opaque import SETS_REQUIRES_GRAD, is_of_pytorch
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class InnerLeaves(Pass[Trace]):
    """Replaces calls of ``requires_grad_`` by views, if that changes no first derivative and no result of the program.

    The call makes a leaf of a value that is computed in the program, or in a checkpoint region, and that does not leave
    the program. What is computed from it is computed by functions of PyTorch alone, since code of the user may ask
    whether a tensor requires grad, and is differentiated only if it does. All results that require grad depend on an
    input that does. A program with hooks, or with other changes of autograd's state, stays as it is.
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
    """Whether an op of the trace, or of a body, turns a tensor that does not require grad into a leaf that does."""
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
            (tensor,) = tensor_inputs_of(op)
            if tensor.layout is not torch.strided:
                return None
            memory.add(tensor.storage)
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


class _Source(enum.Flag):
    """What the gradient of a value that requires grad would reach: inputs of the program, leaves that it makes."""

    INPUT = enum.auto()
    LEAF = enum.auto()


_NONE: Final = _Source(0)


def _results_depend_on_inputs(trace: Trace) -> bool:
    """Whether results that require grad depend on an input that does; False if `_sources` gives none."""
    inputs = {proxy.name: _Source.INPUT for proxy in trace.inputs if _is_tensor(proxy) and proxy.requires_grad}
    sources = _sources(trace, inputs)
    if sources is None:
        return False
    results = [proxy for proxy in iterate_proxies(trace.output) if _is_tensor(proxy) and proxy.requires_grad]
    return all(_Source.INPUT in sources.get(proxy.name, _NONE) for proxy in results)


def _sources(trace: Trace, inputs: dict[str, _Source]) -> dict[str, _Source] | None:
    """The sources of the values that require grad, by name.

    None if code of the user reads a value that depends on a leaf, or if a checkpoint region that reads one has effects
    when backward runs it again.
    """
    sources = dict(inputs)
    for op in trace.symbols:
        read = reduce(or_, [sources.get(proxy.name, _NONE) for proxy in op.inputs()], _NONE)
        if op.symbol is CHECKPOINT:
            body, *free = op.args
            pairs = zip(body.inputs, free, strict=True)
            inner = _sources(body, {one.name: sources[outer.name] for one, outer in pairs if outer.name in sources})
            if inner is None or (_Source.LEAF in read and _has_effects_again(op)):
                return None
            results = zip(body.output, op.outputs(), strict=True)
            sources |= {outer.name: inner[one.name] for one, outer in results if one.name in inner}
            continue
        if _Source.LEAF in read and not _is_of_pytorch(op):
            return None
        # A leaf depends on nothing, nor does a view of memory that was written since (`REBASED`), as far as ops tell.
        sources |= {proxy.name: read or _Source.LEAF for proxy in tensor_outputs_of(op) if proxy.requires_grad}
    return sources


def _has_effects_again(op: BoundSymbol) -> bool:
    """Whether a second run of a checkpoint region writes outside of it, or advances a random number generator."""
    preserves = op.kwargs.get("preserve_rng_state", True)
    return bool(op.effects.mutates) or (op.effects.random and not preserves)


def _is_of_pytorch(op: BoundSymbol) -> bool:
    return is_of_pytorch(op.symbol) and not bodies_of(op) and not programs_of(op.symbol)


def _without_leaves(trace: Trace) -> Trace:
    """The trace and its checkpoint regions, with a view in place of each call that makes a leaf."""
    trace = with_changed_bodies(trace, lambda op: _without_leaves(op.args[0]))
    if not any(map(_makes_leaf, trace.symbols)):
        return trace
    return trace.with_symbols([_view(op) if _makes_leaf(op) else op for op in trace.symbols], InnerLeaves.name)


def _view(op: BoundSymbol) -> BoundSymbol:
    (tensor,), (result,) = tensor_inputs_of(op), tensor_outputs_of(op)
    view_as = registry.symbol_of(torch.Tensor.view_as)
    return replace(op, symbol=view_as, args=(tensor, tensor), kwargs={}, output=result, effects=PURE)


def replaces_leaf(op: BoundSymbol) -> bool:
    """Whether an op is a view that `InnerLeaves` put in place of a call."""
    made = any(proxy.requires_grad for proxy in tensor_outputs_of(op))
    return made and op.is_view() and not any(proxy.requires_grad for proxy in tensor_inputs_of(op))

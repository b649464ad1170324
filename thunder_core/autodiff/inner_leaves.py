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
from thunder_core.ir.trace import Stage, Trace, bodies_of, programs_of
from thunder_core.ir.tree import iterate_proxies
from thunder_core.passes.base import Pass, PassContext
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
        if memory is None or not memory.isdisjoint(returned) or not _is_expressible(trace):
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


def _is_expressible(trace: Trace) -> bool:
    """Whether PyTorch's functions alone read what leaves reach, and results that require grad depend on inputs."""
    given = {proxy.name for proxy in trace.inputs if _is_tensor(proxy) and proxy.requires_grad}
    reached = _reached(trace, _Reached(given, set()))
    results = [proxy for proxy in iterate_proxies(trace.output) if _is_tensor(proxy)]
    return reached is not None and all(proxy.name in reached.inputs for proxy in results if proxy.requires_grad)


@dataclass
class _Reached:
    """Names of values that require grad.

    Attributes:
        inputs: those that depend on an input of the program that requires grad.
        leaves: those that depend on a leaf of the program.
    """

    inputs: set[str]
    leaves: set[str]


def _reached(trace: Trace, reached: _Reached) -> _Reached | None:
    """``reached`` with the values of a trace; None if code of the user reads one that depends on a leaf."""
    for op in trace.symbols:
        read = {proxy.name for proxy in op.inputs()}
        if op.symbol is CHECKPOINT:
            body, *free = op.args
            if not read.isdisjoint(reached.leaves) and _shows_repetition(op):
                return None
            pairs = list(zip(body.inputs, free, strict=True))
            inner = _Reached(*[{one.name for one, outer in pairs if outer.name in names} for names in _sets(reached)])
            found = _reached(body, inner)
            if found is None:
                return None
            for one, outer in zip(body.output, op.outputs(), strict=True):
                for names, of_body in zip(_sets(reached), _sets(found), strict=True):
                    names.update([outer.name] if one.name in of_body else [])
            continue
        if not read.isdisjoint(reached.leaves) and not _is_of_pytorch(op):
            return None
        results = [proxy.name for proxy in tensor_outputs_of(op) if proxy.requires_grad]
        of_nothing = all(
            read.isdisjoint(names) for names in _sets(reached)
        )  # as a view of memory that was written since
        if of_nothing or _makes_leaf(op):
            reached.leaves.update(results)
            continue
        for names in _sets(reached):
            names.update(results if not read.isdisjoint(names) else ())
    return reached


def _shows_repetition(op: BoundSymbol) -> bool:
    """Whether a second run of a checkpoint region, which backward needs for the leaf alone, has visible effects."""
    body: Trace = op.args[0]
    given = {proxy.storage for proxy in body.inputs if _is_tensor(proxy)}
    draws = not op.kwargs.get("preserve_rng_state", True) and any(one.effects.random for one in body.symbols)
    writes = any(proxy.storage in given for one in body.symbols for proxy in tensors_written_by(one))
    return draws or writes or any(_shows_repetition(one) for one in body.symbols if one.symbol is CHECKPOINT)


def _sets(reached: _Reached) -> tuple[set[str], set[str]]:
    return reached.inputs, reached.leaves


def _is_of_pytorch(op: BoundSymbol) -> bool:
    return is_of_pytorch(op.symbol) and not bodies_of(op) and not programs_of(op.symbol)


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

"""The pass that appends backward to a trace, which results in the joint trace.

The partition copies the saved values that are overwritten before backward. Values saved inside of the autograd graph of
an op (`thunder_core.autodiff.derivatives.by_eager`) have to be copied before the op: PyTorch's version counter rejects
a write to any part of their storage.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from thunder_core.autodiff.activity import Activity
from thunder_core.autodiff.derivatives.by_eager import require_used_gradients
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.joint_writer import JointWriter
from thunder_core.autodiff.tensor_hooks import place_tensor_hooks, split_requests, with_input_hooks
from thunder_core.executors.executor import Executor
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes import operations
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.checkpoint_regions import inline_checkpoints


def _with_graph_copies(ops: Iterable[BoundSymbol], trace: Trace, overwritten: Container[str]) -> list[BoundSymbol]:
    """The ops, where those of `derive_by_eager` call their function with copies of tensors that are written later.

    Args:
        trace: the trace that contains the ops.
        overwritten: names of its inputs that the epilogue writes.
    """
    storages = Aliases.of(trace).storages_of(overwritten)
    return [_with_copies(op, storages) if storages and _records_graph(op) else op for op in ops]


def _records_graph(op: BoundSymbol) -> bool:
    outputs = op.outputs()
    return bool(outputs) and isinstance(outputs[-1], OpaqueProxy) and outputs[-1].type_name == "EagerGraph"


def _with_copies(op: BoundSymbol, storages: frozenset[int]) -> BoundSymbol:
    function, (args, kwargs) = op.args[0], op.args[-2:]
    if function is operations.recomputed_call:  # it writes the inputs of the program in backward
        return op
    leaves = list(iterate_leaves((args, kwargs)))
    written = _written(*args) if function is operations.functional_call else frozenset()
    shared = {proxy.storage for proxy in tensor_outputs_of(op)}
    copied = {
        leaf.name: position
        for position, leaf in enumerate(leaves)
        if isinstance(leaf, TensorProxy) and leaf.storage in storages - shared and leaf.name not in written
    }
    return replace(op, kwargs={"copied": tuple(copied.values())}) if copied else op


def _written(
    function: Callable[..., Any], written: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> frozenset[str]:
    """The arguments that `functional_call` copies anyway."""
    leaves = list(iterate_leaves((args, kwargs)))
    return frozenset([leaves[position].name for position in written])


@dataclass(frozen=True)
class Differentiate(Pass[Joint | None]):
    """Appends to a trace the ops that compute gradients of its inputs from cotangents of its outputs.

    The result is None if no output depends, through ops that autograd records, on an input that requires grad. The ops
    of the joint trace run under ``no_grad``.

    Attributes:
        overwritten: names of inputs that the epilogue writes.
        returned: positions of outputs that are returned to the caller.
    """

    name: ClassVar[str] = "Differentiate"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    overwritten: frozenset[str]
    returned: frozenset[int]

    def run(self, trace: Trace, context: PassContext) -> Joint | None:
        return differentiated(trace, context.executors, self.overwritten, self.returned)

    def traces(self, result: Joint | None) -> tuple[Trace, ...]:
        return () if result is None else (result.trace,)


def differentiated(
    trace: Trace,
    executors: Sequence[Executor] = (),
    overwritten: frozenset[str] = frozenset(),
    returned: frozenset[int] = frozenset(),
) -> Joint | None:
    """The result of `Differentiate` for a trace; derivatives by ``executors``, for ops they claim, take precedence."""
    inlined = inline_checkpoints(trace)
    trace, requests = split_requests(place_tensor_hooks(inlined.trace))
    activity = Activity.of(trace)
    if not activity.outputs:
        return None
    writer = JointWriter(trace, activity, executors, inlined)
    writer.forward()
    backward_start = len(writer.emitter.ops)
    cotangents = writer.cotangent_inputs()
    writer.backward()
    sources = tuple(
        [p for p in trace.inputs if isinstance(p, TensorProxy) and p.requires_grad and p.name in activity.active]
    )
    gradients = tuple([writer.cotangents.known.get(proxy.name) for proxy in sources])
    gradients = with_input_hooks(writer.emitter, requests, sources, gradients)
    joint = Trace(
        "joint",
        (*trace.inputs, *cotangents),
        require_used_gradients(_with_graph_copies(writer.emitter.ops, trace, overwritten)),
        (tuple(trace.output), gradients),
        Stage.FUNCTIONAL,
        Differentiate.name,
        writer.emitter.context,
    )
    constant = [index for index, p in enumerate(trace.output) if isinstance(p, TensorProxy) and not p.requires_grad]
    repeated = _repeated(joint)
    return Joint(
        joint,
        backward_start,
        cotangents,
        activity.outputs,
        sources,
        tuple(constant),
        frozenset(writer.recomputed) | repeated,
        overwritten,
        returned,
        dict(writer.origins),
        tuple(writer.offered),
        repeated,
        dict(writer.rules),
    )


def _repeated(joint: Trace) -> frozenset[str]:
    """Names of the results of repeated ops in backward, and of values that only rearrange or cast these."""
    names: set[str] = set()
    for op in joint.symbols:
        moves = op.is_view() or not op.symbol.tags.isdisjoint((Tag.CAST, Tag.COPY, Tag.SHAPE))
        same = op.effects.pure and moves
        if Tag.REPEATED in op.symbol.tags or (same and {proxy.name for proxy in op.inputs()} <= names):
            names.update(proxy.name for proxy in op.outputs() if op.inputs())
    return frozenset(names)

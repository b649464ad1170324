"""The pass: from a program to its joint trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from thunder_core.autodiff.activity import Activity
from thunder_core.autodiff.by_eager import require_what_is_used
from thunder_core.autodiff.checkpoint import inline_checkpoints
from thunder_core.autodiff.graph_copies import with_graph_copies
from thunder_core.autodiff.input_gradients import handed_over, split_requests
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.joint_writer import JointWriter
from thunder_core.autodiff.tensor_hooks import place_tensor_hooks
from thunder_core.executors.executor import Executor
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.base import Pass, PassContext


@dataclass(frozen=True)
class Differentiate(Pass[Joint | None]):
    """Appends to a program the lines that compute gradients of its inputs from cotangents of its outputs.

    The result is None for a program none of whose outputs depends, through lines that autograd records, on an input
    that requires grad. The lines of the joint trace run without recording gradients.

    Attributes:
        overwritten: names of inputs that are written after the program.
        returned: positions of outputs that the caller gets.
    """

    name: ClassVar[str] = "Differentiate"
    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    overwritten: frozenset[str] = frozenset()
    returned: frozenset[int] = frozenset()

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
    """What `Differentiate` makes of the trace; ``executors`` are asked first for the derivatives of what they claim."""
    inlined = inline_checkpoints(trace)
    trace, requests = split_requests(place_tensor_hooks(inlined.trace))
    activity = Activity.of(trace)
    if not activity.outputs:
        return None
    writer = JointWriter(trace, activity, executors, inlined)
    writer.forward()
    forward_lines = len(writer.emitter.lines)
    cotangents = writer.cotangent_inputs()
    writer.backward()
    sources = tuple(
        [p for p in trace.inputs if isinstance(p, TensorProxy) and p.requires_grad and p.name in activity.active]
    )
    gradients = tuple([writer.cotangents.known.get(proxy.name) for proxy in sources])
    gradients = handed_over(writer.emitter, requests, sources, gradients)
    joint = Trace(
        "joint",
        (*trace.inputs, *cotangents),
        require_what_is_used(with_graph_copies(writer.emitter.lines, trace, overwritten)),
        (tuple(trace.output), gradients),
        Stage.FUNCTIONAL,
        Differentiate.name,
        writer.emitter.context,
    )
    constant = [index for index, p in enumerate(trace.output) if isinstance(p, TensorProxy) and not p.requires_grad]
    repeated = _repeated(joint)
    return Joint(
        joint,
        forward_lines,
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
    )


def _repeated(joint: Trace) -> frozenset[str]:
    """Names of the values of lines that backward calls again, and of what only lays out or casts them."""
    names: set[str] = set()
    for line in joint.symbols:
        moves = line.is_view() or not line.symbol.tags.isdisjoint((Tag.CAST, Tag.COPY, Tag.SHAPE))
        same = line.effects.pure and moves
        if Tag.REPEATED in line.symbol.tags or (same and {proxy.name for proxy in line.inputs()} <= names):
            names.update(proxy.name for proxy in line.outputs() if line.inputs())
    return frozenset(names)

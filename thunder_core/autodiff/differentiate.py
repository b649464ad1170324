"""The pass: from a program to its joint trace.

What the partition saves it copies itself. What such a line saves is inside of its graph, where PyTorch counts every
write to the tensor's whole storage against it: also the program's own write to another part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from thunder_core.autodiff.activity import Activity
from thunder_core.autodiff.by_eager import require_what_is_used
from thunder_core.autodiff.checkpoint import inline_checkpoints
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.joint_writer import JointWriter
from thunder_core.autodiff.tensor_hooks import handed_over, place_tensor_hooks, split_requests
from thunder_core.executors.executor import Executor
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes import operations
from thunder_core.passes.base import Pass, PassContext


def with_graph_copies(lines: Iterable[BoundSymbol], trace: Trace, overwritten: Container[str]) -> list[BoundSymbol]:
    """The lines, of which those of `derive_by_eager` call their function with copies of what is written later.

    Args:
        trace: the program.
        overwritten: names of its inputs that are written after it.
    """
    storages = Aliases.of(trace).storages_of(overwritten)
    return [_with_copies(line, storages) if storages and _records_graph(line) else line for line in lines]


def _records_graph(line: BoundSymbol) -> bool:
    outputs = line.outputs()
    return bool(outputs) and isinstance(outputs[-1], OpaqueProxy) and outputs[-1].type_name == "EagerGraph"


def _with_copies(line: BoundSymbol, storages: frozenset[int]) -> BoundSymbol:
    function, (args, kwargs) = line.args[0], line.args[-2:]
    if function is operations.recomputed_call:  # it writes the program's own inputs in backward
        return line
    leaves = list(iterate_leaves((args, kwargs)))
    written = _written(*args) if function is operations.functional_call else frozenset()
    shared = {proxy.storage for proxy in tensor_outputs_of(line)}
    copied = {
        leaf.name: position
        for position, leaf in enumerate(leaves)
        if isinstance(leaf, TensorProxy) and leaf.storage in storages - shared and leaf.name not in written
    }
    return replace(line, kwargs={"copied": tuple(copied.values())}) if copied else line


def _written(
    function: Callable[..., Any], written: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> frozenset[str]:
    """The arguments that `functional_call` copies itself."""
    leaves = list(iterate_leaves((args, kwargs)))
    return frozenset([leaves[position].name for position in written])


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

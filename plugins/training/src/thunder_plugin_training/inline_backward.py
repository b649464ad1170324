"""The transform that makes backward, as a program calls it, a part of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Place, Transform, TransformContext
from thunder_plugin_training.explicit_gradients import LeftToAutograd, with_explicit_gradients
from thunder_plugin_training.joint_step import with_backward
from thunder_plugin_training.operations import GRADIENTS
from thunder_plugin_training.recomputation import with_recomputation


@dataclass(frozen=True)
class InlineBackward(Transform):
    """Makes forward, backward and the optimizer of a training step one program, which executors run.

    Without it PyTorch's autograd runs a program that calls ``backward``, op by op as it was recorded. A program is left
    to autograd, which the report says, if it does more than this with it: ``backward`` of a tensor, with a gradient or
    without, once for each part of the graph; reads of ``grad`` of leaves, writes to it, and assignments.

    Gradients are freed when no later op reads them. A gradient that the program leaves in ``grad`` is assigned at its
    end. A result with a graph that backward has freed has one that raises an error in backward, as in eager.
    """

    name: ClassVar[str] = "inline_backward"
    place: ClassVar[Place] = Place.ACQUIRED
    verified: ClassVar[bool] = False
    also: ClassVar[tuple[Place, ...]] = (Place.BEFORE_DIFFERENTIATION, Place.PARTITIONED)

    def applies(self, context: TransformContext) -> bool:
        return bool(context.gradients)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The program with an op for each call of backward, then with backward in their place, then with less saved."""
        if context.place is Place.PARTITIONED:
            return with_recomputation(trace, context)
        if context.place is Place.ACQUIRED:
            if not any(Tag.RUNS_AUTOGRAD in op.symbol.tags for op in trace.symbols):
                return trace
            try:
                return with_explicit_gradients(trace, context.gradients)
            except LeftToAutograd as reason:
                context.notes.append(f"{self.name}: PyTorch's autograd runs the program: {reason}")
                return trace
        if not any(op.symbol is GRADIENTS for op in trace.symbols):
            return trace
        inputs = {proxy.name for proxy in trace.inputs if isinstance(proxy, TensorProxy)}
        return with_backward(trace, context.executors, context.protected & inputs)

"""Which values of a trace depend on inputs that require grad, and which of those matter for its outputs."""

from __future__ import annotations

from dataclasses import dataclass

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of
from thunder_core.ir.proxy import differentiable
from thunder_core.ir.trace import Trace


def records(bound: BoundSymbol, trace: Trace) -> bool:
    """Whether autograd records the op, given that an argument requires grad.

    The results' ``requires_grad`` does not decide this: a view created under ``no_grad`` has it set, but no history.
    """
    context = bound.context or trace.context
    return context.grad_enabled and not context.inference


@dataclass(frozen=True, slots=True)
class Activity:
    """The values of a trace that differentiation has to visit.

    Attributes:
        active: values that depend, through ops that autograd records, on an input that requires grad.
        reached: active values that a differentiable output depends on, again through ops that autograd records.
        outputs: positions of the differentiable outputs.
    """

    active: frozenset[str]
    reached: frozenset[str]
    outputs: tuple[int, ...]

    @classmethod
    def of(cls, trace: Trace) -> Activity:
        """Compute the activity of a trace in one forward and one backward walk over its ops."""
        active = {proxy.name for proxy in trace.inputs if differentiable(proxy)}
        recorded: list[BoundSymbol] = []
        for bound in trace.symbols:
            if records(bound, trace) and any(proxy.name in active for proxy in tensor_inputs_of(bound)):
                recorded.append(bound)
                active.update(proxy.name for proxy in bound.outputs() if differentiable(proxy))
        outputs = [index for index, proxy in enumerate(trace.output) if proxy.name in active and differentiable(proxy)]
        reached = {trace.output[index].name for index in outputs}
        for bound in reversed(recorded):
            if any(proxy.name in reached for proxy in bound.outputs()):
                reached.update(proxy.name for proxy in bound.inputs() if proxy.name in active)
        return cls(frozenset(active), frozenset(reached), tuple(outputs))

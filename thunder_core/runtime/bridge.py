"""One `torch.autograd.Function` joins a differentiated program to PyTorch's autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.passes.operations import with_strides
from thunder_core.pytorch_internals import (
    get_current_graph_task_keep_graph,
    is_view,
    top_saved_tensors_default_hooks,
    will_engine_execute_node,
)
from thunder_core.runtime.observed_outputs import check_unobserved, watch
from thunder_core.runtime.own_state import own_state
from thunder_core.tracing.tracebacks import folded, free_frames

if TYPE_CHECKING:
    from thunder_core.ir.trace import Trace
    from thunder_core.runtime.differentiated import DifferentiatedProgram


@dataclass(frozen=True, slots=True)
class Backward:
    """One backward program.

    Attributes:
        function: takes a list of saved values, cotangents and sizes, which it empties, and returns gradients.
        used: positions of the saved values that it takes.
        consumed: names of the values that it computes from both cotangents and saved values. In eager these belong to
            the nodes of the graph whose saved tensors are freed.
        trace: its executable trace; None for one from a file.
    """

    function: Callable[[list[Any]], Sequence[Any]]
    used: tuple[int, ...]
    consumed: frozenset[str]
    trace: Trace | None = None


def join(program: DifferentiatedProgram) -> Callable[..., tuple[Any, ...]]:
    """A function from the program's inputs to the tuple of its outputs, which autograd differentiates."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        outputs: tuple[Any, ...] = Bridge.apply(program, *inputs)
        return outputs

    def run_with_gradients(*inputs: Any) -> tuple[Any, ...]:
        with torch.enable_grad():
            return run(*inputs)

    return run if program.original.context.grad_enabled else run_with_gradients  # the program enables them inside


class Bridge(torch.autograd.Function):
    """Calls a `DifferentiatedProgram` under PyTorch's autograd."""

    @staticmethod
    def forward(ctx: Any, program: DifferentiatedProgram, *inputs: Any) -> tuple[Any, ...]:
        """``inputs`` are the program's; the result is the tuple of its outputs."""
        try:
            values = program.forward(*inputs)
        except BaseException as error:
            free_frames(error)  # within autograd's own modes: an inference mode restores those that it has met
            if isinstance(error, Exception):
                error.__traceback__ = folded(error)
            raise
        count = program.outputs
        saved = values[count:]
        if program.all_tensors:
            ctx.save_for_backward(*saved)
        else:
            ctx.save_for_backward(*[saved[index] for index in program.tensors])
            ctx.objects = [None if isinstance(value, torch.Tensor) else value for value in saved]
        ctx.program = program
        # Hooks may return tensors with other strides: the copies of save_on_cpu are contiguous.
        ctx.hooked = top_saved_tensors_default_hooks(True) is not None
        ctx.remaining = ctx.consumed = None
        ctx.inputs = program.second_derivatives.remember(inputs)
        ctx.sizes = inputs[len(inputs) - len(program.sizes) :]
        if program.defined:
            ctx.sizes += tuple([values[position] for position in program.defined.values()])
        ctx.set_materialize_grads(False)
        outputs = tuple([_no_view(value) for value in values[:count]])
        if program.joint.constant:
            ctx.mark_non_differentiable(*[outputs[index] for index in program.joint.constant])
        if program.related:
            ctx.watched = watch(outputs, program.related)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Gradients of the program's inputs."""
        program: DifferentiatedProgram = ctx.program
        if program.related:
            check_unobserved(ctx, ctx.watched, program.related, cotangents)
        given = [cotangents[index] for index in program.joint.cotangent_of]
        del cotangents
        default_dtype = torch.get_default_dtype()
        try:
            with own_state(program.default_dtype):
                gradients = _gradients(ctx, program, given)
        except BaseException as error:  # also of a signal handler, within `own_state`
            free_frames(error)  # autograd itself restores other modes
            torch.set_default_dtype(default_dtype)
            if isinstance(error, Exception):
                error.__traceback__ = folded(error)
            raise
        gradients = (*gradients, None)
        return (None, *[gradients[position] for position in program.gradient_of])


def _gradients(ctx: Any, program: DifferentiatedProgram, given: list[Any]) -> Sequence[Any]:
    """The gradients for these cotangents, a list that is emptied so that the program has the only references."""
    wanted = _wanted(ctx.next_functions, program.edges)
    if torch.is_grad_enabled():
        values = _values(ctx, program, program.saved_inputs)
        return program.second_derivatives.gradients(ctx.inputs, values, given, wanted, ctx.sizes)
    present = tuple([cotangent is not None for cotangent in given])
    backward = program.backward(present, wanted, ctx.sizes)
    arguments = _saved(ctx, program, backward, all(present))
    pairs = zip(given, program.cotangent_strides(*ctx.sizes), strict=True)
    arguments += [with_strides(cotangent, stride) for cotangent, stride in pairs if cotangent is not None]
    arguments += ctx.sizes
    given.clear()
    return backward.function(arguments)


def _saved(ctx: Any, program: DifferentiatedProgram, backward: Backward, complete: bool) -> list[Any]:
    """The saved values that ``backward`` takes; unless the graph is retained, autograd frees them now.

    Values that only outputs without a cotangent need (there are none if ``complete``) stay for a backward from these:
    in eager they would belong to nodes of the graph that this backward does not visit.
    """
    if ctx.remaining is not None and not backward.consumed.isdisjoint(ctx.consumed):
        return list(ctx.saved_tensors)  # raises, as they are freed
    values = _values(ctx, program, backward.used)
    arguments = [values[index] for index in backward.used]
    if not get_current_graph_task_keep_graph():
        ctx.consumed = backward.consumed if ctx.consumed is None else backward.consumed | ctx.consumed
        ctx.remaining = {} if complete else _remaining(ctx.remaining, values, set(backward.used) - program.saved_inputs)
        ctx.objects = None
        ctx.maybe_clear_saved_tensors()
    return arguments


def _remaining(remaining: dict[int, Any] | None, values: list[Any], gone: set[int]) -> dict[int, Any]:
    return {
        index: values[index] for index in (range(len(values)) if remaining is None else remaining) if index not in gone
    }


def _values(ctx: Any, program: DifferentiatedProgram, needed: Iterable[int]) -> list[Any]:
    """The saved values in order, None for freed ones. Raises RuntimeError if a value at ``needed`` is freed."""
    remaining: dict[int, Any] | None = ctx.remaining
    if remaining is not None and all(index in remaining for index in needed):
        return [remaining.get(index) for index in range(len(program.partitioned.saved))]
    tensors = ctx.saved_tensors  # raises where they are freed
    if ctx.hooked:
        strides = program.saved_strides(*ctx.sizes)
        tensors = [with_strides(tensor, stride) for tensor, stride in zip(tensors, strides, strict=True)]
    if program.all_tensors:
        return list(tensors)
    values = list(ctx.objects)
    for index, tensor in zip(program.tensors, tensors, strict=True):
        values[index] = tensor
    return values


def _no_view(value: Any) -> Any:
    """The value without its view relation: autograd rejects writes to outputs that are views of tensors of forward."""
    return value.detach() if isinstance(value, torch.Tensor) and is_view(value) else value


def _wanted(nodes: Sequence[Any], edges: Sequence[int]) -> tuple[bool, ...]:
    """For each edge, whether backward continues to the node of that input in the autograd graph."""
    will_execute = will_engine_execute_node
    try:
        return tuple([nodes[edge][0] is not None and will_execute(nodes[edge][0]) for edge in edges])
    except RuntimeError:  # one of them is a leaf passed to `torch.autograd.grad` as an input
        return tuple([_will_execute(nodes[edge][0]) for edge in edges])


def _will_execute(node: Any) -> bool:
    if node is None:
        return False
    try:
        return bool(will_engine_execute_node(node))
    except RuntimeError:
        return True

"""One `torch.autograd.Function` joins a differentiated program to PyTorch's autograd."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.tensor_hooks import without_hooks_on_inputs
from thunder_core.autodiff.zero_cotangents import ZeroCotangents
from thunder_core.errors import UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import annotate_exception, compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace

Variant = tuple[tuple[bool, ...], tuple[bool, ...]]
"""For which outputs there is a cotangent, and which gradients are wanted."""


@dataclass(frozen=True, slots=True)
class Backward:
    """One backward program.

    Attributes:
        function: takes a list of saved values and cotangents, which it empties, and returns gradients.
        used: positions of the saved values that it takes.
        consumed: names of the values that it computes from cotangents and saved values: in eager, of the nodes of the
            graph whose saved tensors are freed.
    """

    function: Callable[[list[Any]], Sequence[Any]]
    used: tuple[int, ...]
    consumed: frozenset[str]


@dataclass(eq=False)
class DifferentiatedProgram:
    """A program as forward and backward, callable with the program's inputs; returns the tuple of its outputs.

    Attributes:
        joint, partitioned: what it was made from.
        forward_trace: as executed.
        backward_trace: as executed when all outputs have cotangents and all gradients are wanted.
        original: the program before differentiation, for second derivatives.
        claim: makes a trace executable.
    """

    joint: Joint
    partitioned: Partitioned
    forward_trace: Trace
    backward_trace: Trace
    original: Trace
    claim: Callable[[Trace], Trace]
    _variants: dict[Variant, Backward] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _eager: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        self.forward: Callable[..., tuple[Any, ...]] = compile_trace(self.forward_trace)
        saved = self.partitioned.saved
        self.outputs = self.partitioned.outputs
        self.tensors = [index for index, proxy in enumerate(saved) if isinstance(proxy, TensorProxy)]
        primals = {proxy.name for proxy in self.joint.primals}
        self.saved_inputs = {index for index, proxy in enumerate(saved) if proxy.name in primals}
        self.all_tensors = len(self.tensors) == len(saved)
        names = [proxy.name for proxy in self.joint.primals]
        self.sources = [names.index(proxy.name) for proxy in self.joint.differentiable]
        tensors = [index for index, proxy in enumerate(self.joint.primals) if isinstance(proxy, TensorProxy)]
        self.edges = [tensors.index(position) for position in self.sources]  # autograd knows tensors alone

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        outputs: tuple[Any, ...]
        if self.original.context.grad_enabled:
            outputs = Bridge.apply(self, *inputs)
        else:  # the program enables gradients inside
            with torch.enable_grad():
                outputs = Bridge.apply(self, *inputs)
        return outputs

    def backward(self, present: tuple[bool, ...], wanted: tuple[bool, ...]) -> Backward:
        """The backward program for these cotangents and gradients; made when it is first asked for."""
        variant = (present, wanted)
        known = self._variants.get(variant)
        if known is None:
            with self._lock:
                known = self._variants.get(variant) or self._variants.setdefault(variant, self._compile(*variant))
        return known

    def _compile(self, present: tuple[bool, ...], wanted: tuple[bool, ...]) -> Backward:
        saved = self.partitioned.saved
        if all(present) and all(wanted):
            consumed = self._consumed(self.partitioned.backward)
            return Backward(compile_trace(self.backward_trace, boxed=True), tuple(range(len(saved))), consumed)
        cotangents = self.joint.cotangents
        absent = frozenset(proxy.name for proxy, given in zip(cotangents, present, strict=True) if not given)
        unwanted = frozenset(index for index, asked in enumerate(wanted) if not asked)
        every = frozenset(proxy.name for proxy in cotangents)
        trace = ZeroCotangents(every, absent, unwanted).run(self.partitioned.backward)
        read = {proxy.name for bound in trace.symbols for proxy in bound.inputs()}
        read |= {proxy.name for proxy in trace.output if proxy is not None}
        used = tuple([index for index, proxy in enumerate(saved) if proxy.name in read])
        given = [proxy for proxy in cotangents if proxy.name not in absent]
        trace = replace(trace, inputs=(*[saved[index] for index in used], *given))
        return Backward(compile_trace(self.claim(trace), boxed=True), used, self._consumed(trace))

    def _consumed(self, trace: Trace) -> frozenset[str]:
        dependent = {proxy.name for proxy in self.joint.cotangents}
        consumed = set()
        for bound in trace.symbols:
            inputs = {proxy.name for proxy in bound.inputs()}
            if inputs & dependent:
                made = [proxy.name for proxy in bound.outputs()]
                dependent.update(made)
                if not inputs <= dependent:
                    consumed.update(made)
        return frozenset(consumed)

    def again(self, inputs: list[Any], cotangents: Sequence[Any], wanted: tuple[bool, ...]) -> list[Any]:
        """Gradients that can be differentiated themselves: the program runs again, recorded by autograd."""
        original = without_hooks_on_inputs(self.original)
        effects = [bound for bound in original.symbols if _differs_next_time(bound)]
        if effects:
            raise UnsupportedError(
                f"second derivatives go through the program once more, and it calls {effects[0].symbol.name}, which "
                "does not do the same twice",
                location=effects[0].location,
                advice=("run the program that needs second derivatives in eager PyTorch",),
            )
        if self._eager is None:
            self._eager = compile_trace(self.claim(original))
        with torch.enable_grad():
            asked = [position for position, want in zip(self.sources, wanted, strict=True) if want]
            for position in asked:  # apart from what other inputs were computed from
                inputs[position] = inputs[position].view_as(inputs[position])
            outputs = self._eager(*inputs)
            pairs = [
                (outputs[index], cotangent)
                for index, cotangent in zip(self.joint.cotangent_of, cotangents, strict=True)
                if cotangent is not None
            ]
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                [inputs[position] for position in asked],
                [cotangent for _, cotangent in pairs],
                create_graph=True,
                allow_unused=True,
            )
        gradients = dict(zip(asked, found, strict=True))
        return [gradients.get(position) for position in self.sources]


def _differs_next_time(bound: BoundSymbol) -> bool:
    """Whether running the line once more gives something else, or can be noticed. Hooks are set on new tensors."""
    return bound.effects.random or (bound.effects.external and Tag.HOOK not in bound.symbol.tags)


class Bridge(torch.autograd.Function):
    """Calls a `DifferentiatedProgram` under PyTorch's autograd."""

    @staticmethod
    def forward(ctx: Any, program: DifferentiatedProgram, *inputs: Any) -> tuple[Any, ...]:
        """``inputs`` are the program's; the result is the tuple of its outputs."""
        try:
            values = program.forward(*inputs)
        except Exception as error:
            annotate_exception(error)
            raise
        count = program.outputs
        saved = values[count:]
        if program.all_tensors:
            ctx.save_for_backward(*saved)
        else:
            ctx.save_for_backward(*[saved[index] for index in program.tensors])
            ctx.objects = [None if isinstance(value, torch.Tensor) else value for value in saved]
        ctx.program = program
        ctx.kept = ctx.consumed = None
        ctx.inputs = [_reference(value) for value in inputs]
        ctx.set_materialize_grads(False)
        outputs = tuple([_no_view(value) for value in values[:count]])
        if program.joint.constant:
            ctx.mark_non_differentiable(*[outputs[index] for index in program.joint.constant])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        """Gradients of the program's inputs."""
        program: DifferentiatedProgram = ctx.program
        given = [cotangents[index] for index in program.joint.cotangent_of]
        nodes = ctx.next_functions
        wanted = tuple([_will_execute(nodes[edge][0]) for edge in program.edges])
        if torch.is_grad_enabled():
            gradients: Sequence[Any] = program.again(_inputs(ctx), given, wanted)
        else:
            present = tuple([cotangent is not None for cotangent in given])
            backward = program.backward(present, wanted)
            arguments = _saved(ctx, program, backward, all(present))
            arguments += [cotangent for cotangent in given if cotangent is not None]
            del cotangents, given  # the program alone holds them now
            try:
                gradients = backward.function(arguments)
            except Exception as error:
                annotate_exception(error)
                raise
        result: list[Any] = [None] * (1 + len(program.joint.primals))
        for position, gradient in zip(program.sources, gradients, strict=True):
            result[position + 1] = gradient
        return tuple(result)


def _saved(ctx: Any, program: DifferentiatedProgram, backward: Backward, complete: bool) -> list[Any]:
    """The saved values that ``backward`` takes; unless the graph is retained, autograd frees them now.

    What only outputs without a cotangent need is kept for a backward from these (``complete``: there are none): in eager
    it would belong to nodes of the graph that this backward does not visit.
    """
    kept: dict[int, Any] | None = ctx.kept
    if kept is None:
        values = _unpacked(ctx, program)
    elif backward.consumed.isdisjoint(ctx.consumed) and kept.keys() >= set(backward.used):
        values = [kept.get(index) for index in range(len(program.partitioned.saved))]
    else:
        return list(ctx.saved_tensors)  # raises, as they are freed
    arguments = [values[index] for index in backward.used]
    if not torch._C._autograd._get_current_graph_task_keep_graph():
        ctx.consumed = backward.consumed | (ctx.consumed or frozenset())
        gone = set(backward.used) - program.saved_inputs
        left = () if complete else range(len(values)) if kept is None else kept
        ctx.kept = {index: values[index] for index in left if index not in gone}
        ctx.objects = None
        ctx.maybe_clear_saved_tensors()
    return arguments


def _unpacked(ctx: Any, program: DifferentiatedProgram) -> list[Any]:
    tensors = ctx.saved_tensors
    if program.all_tensors:
        return list(tensors)
    values = list(ctx.objects)
    for index, tensor in zip(program.tensors, tensors, strict=True):
        values[index] = tensor
    return values


def _no_view(value: Any) -> Any:
    """Outputs must not be views of what only forward knows: autograd refuses writes to those."""
    return value.detach() if isinstance(value, torch.Tensor) and value._is_view() else value


def _will_execute(node: Any) -> bool:
    """Whether backward goes on to ``node``: an input's place in the autograd graph."""
    if node is None:
        return False
    try:
        return bool(torch._C._will_engine_execute_node(node))
    except RuntimeError:  # a leaf whose gradient `torch.autograd.grad` was asked for
        return True


def _reference(value: Any) -> Any:
    """What second derivatives need of an input: the tensor itself, as long as somebody holds it, and its version."""
    if isinstance(value, torch.Tensor):
        return weakref.ref(value), value._version
    return value


def _inputs(ctx: Any) -> list[Any]:
    """The inputs of the program's call. Raises UnsupportedError when one is gone or was written."""
    inputs = []
    for proxy, item in zip(ctx.program.joint.primals, ctx.inputs, strict=True):
        if isinstance(proxy, TensorProxy):
            reference, version = item
            tensor = reference()
            if tensor is None or tensor._version != version:
                what = "was freed" if tensor is None else "was written"
                raise UnsupportedError(
                    f"second derivatives go through the program once more, and its input {proxy.name} {what} since",
                    advice=(
                        "keep a reference to the inputs of the program, unchanged, until its second derivatives are "
                        "computed",
                    ),
                )
            inputs.append(tensor)
        else:
            inputs.append(item)
    return inputs

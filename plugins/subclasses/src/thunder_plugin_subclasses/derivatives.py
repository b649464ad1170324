"""The derivatives of calls with wrapper subclasses, recorded after the program has ended, the last call first.

Autograd differentiates its graph of each call, with gradients of the same classes and contexts as in eager: the
gradient of a replicated `DTensor` in a matmul with a sharded one consists of partial sums. If several calls use a
value, its gradients are added as inner tensors or, if their contexts differ, by the class.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from thunder_core.checks.plain import identical, is_plain
from thunder_core.errors import AcquisitionError, DataDependentError
from thunder_core.ir.annotation import contiguous_stride
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.geometry import overlaps_itself
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.frames import CodeKind, kind_of_class
from thunder_frontend.observe.writes import Write
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.traced_tensor import Variable
from thunder_plugin_subclasses.differentiable_calls import DifferentiableCall
from thunder_plugin_subclasses.guards import NotComparableError, facts
from thunder_plugin_subclasses.parts import carrying, flattened, gradient_parts, is_wrapper, made_like
from thunder_plugin_subclasses.recording import Recording
from thunder_plugin_subclasses.wrapper_op import WrapperOp

Values = tuple[Variable, ...]
"""The variables of the inner tensors of a wrapper that carry gradients."""


@dataclass(frozen=True)
class _Use:
    """A use of a wrapper in the program.

    Attributes:
        gradient: a tensor like the gradient from this use.
        place_in: replaces the wrapper's values in this use: takes the new values by the names of the old ones.
    """

    gradient: torch.Tensor
    place_in: Callable[[dict[str, Proxy]], None]


@dataclass(frozen=True)
class _Outside:
    """Values from outside that the calls in a checkpoint region use, each with such a call and its wrapper argument."""

    uses: list[tuple[Values, DifferentiableCall, torch.Tensor, _Use]]


def record_derivatives(recording: Recording, outputs: list[Proxy]) -> None:
    """Complete the ops of all calls of a program.

    Args:
        outputs: the outputs of the trace.

    Raises:
        UnsupportedError: a derivative cannot be computed on inner tensors, or has other effects.
    """
    scope = _Scope(recording, outputs, _needed_for(outputs, recording.recorder.trace.ops))
    for values, (_, _, gradient) in scope.record(recording.calls).items():
        scope.settle(values, gradient)
    recording.calls.clear()
    scope.finish({proxy.name for proxy in outputs})


def record_derivatives_of_region(recording: Recording, region: Region, first: int) -> None:
    """Complete the ops of the calls in a checkpoint region that is recorded now.

    Args:
        first: the position of the first of these calls.

    Raises:
        UnsupportedError: as for `record_derivatives`; or a wrapper that requires grad leaves the region.
    """
    scope = _Scope(recording, [])
    outside_ = scope.record(recording.calls[first:])
    uses = [  # without autograd's graph of the calls
        (
            values,
            replace(call, wanted=[], outputs=[]),
            tensor,
            _Use(gradient, partial(_use_in_region, recording, call.op.symbol)),
        )
        for values, (call, tensor, gradient) in outside_.items()
    ]
    last = replace(recording.calls[-1], wanted=[], outputs=[])
    recording.calls[first:] = [_Outside(uses)]
    del outside_
    scope.finish(_leaving(recording, region, last))


def _use_in_region(recording: Recording, symbol: Symbol, others: dict[str, Proxy]) -> None:
    """Replace arguments of a region's op, the op in whose body ``symbol`` is called."""

    def has(body: Trace) -> bool:
        return any(op.symbol is symbol or any(map(has, bodies_of(op))) for op in body.symbols)

    ops = recording.recorder.trace.ops
    index = next(index for index, op in enumerate(ops) if any(map(has, bodies_of(op))))
    args = [others.get(arg.name, arg) if isinstance(arg, TensorProxy) else arg for arg in ops[index].args]
    ops[index] = replace(ops[index], args=tuple(args))


def _leaving(recording: Recording, region: Region, last: DifferentiableCall) -> set[str]:
    """The names of values of a region that the program still references."""
    carriers, defined = recording.carriers, region.defined()
    for collect in (gc.collect, None):
        live = list(map(recording.recorder.tensors.variable, region.live_tensors()))
        if not any(variable in carriers and carriers[variable].name in defined for variable in live):
            return {variable.proxy.name for variable in live}
        if collect is not None:
            collect()
    raise last.refuse("a tensor that requires grad leaves the checkpoint region that it is computed in")


def _needed_for(outputs: Sequence[Proxy], ops: Sequence[BoundSymbol]) -> frozenset[str]:
    """The names of the values from which the outputs are computed."""
    needed = {proxy.name for proxy in outputs}
    for op in reversed(ops):
        if any(proxy.name in needed for proxy in op.outputs()):
            needed.update(proxy.name for proxy in op.inputs())
    return frozenset(needed)


class _Scope:
    """The calls of a program, or of a checkpoint region.

    Args:
        needed: the names of the values from which outputs are computed; None if all calls count.
    """

    def __init__(self, recording: Recording, outputs: list[Proxy], needed: frozenset[str] | None = None) -> None:
        self._recording = recording
        self._recorder = recording.recorder
        self._outputs = outputs
        self._returned = {proxy.name for proxy in outputs}
        self._needed = needed
        self._uses: dict[Values, list[_Use]] = {}
        self._ops: list[WrapperOp] = []

    def record(self, calls: list[Any]) -> dict[Values, tuple[DifferentiableCall, torch.Tensor, torch.Tensor]]:
        """Record the derivatives of ``calls``.

        Returns:
            For each wrapper that is not a result of these calls: a call that uses it, the wrapper, and a tensor like
            its gradient.
        """
        differentiable = [call for call in calls if isinstance(call, DifferentiableCall)]
        computed = {self._values(output) for call in differentiable for output in call.outputs}
        given: dict[Values, tuple[DifferentiableCall, torch.Tensor]] = {}
        for call in reversed(calls):
            if isinstance(call, _Outside):
                for values, user, tensor, use in call.uses:
                    self._uses.setdefault(values, []).append(use)
                    given[values] = user, tensor
                continue
            if not self._is_needed(call):  # no gradient flows, so it decides no layout
                continue
            self._differentiate(call)
            given |= {self._values(tensor): (call, tensor) for tensor in filter(is_wrapper, call.wanted)}
        gradients = {
            values: (call, tensor, self._gradient_of(call, tensor, 0))
            for values, (call, tensor) in given.items()
            if values not in computed
        }
        return {
            values: (call, tensor, gradient)
            for values, (call, tensor, gradient) in gradients.items()
            if gradient is not None
        }

    def _is_needed(self, call: DifferentiableCall) -> bool:
        if self._needed is None:
            return True
        op = self._recorder.trace.ops[call.op.position()]
        return any(proxy.name in self._needed for proxy in op.outputs())

    def finish(self, returned: set[str]) -> None:
        """Finish the ops, that of the last call first."""
        for op in self._ops:
            op.finish(returned)

    def _values(self, tensor: torch.Tensor) -> Values:
        return tuple(map(self._recorder.tensors.variable, carrying(tensor)))

    def _differentiate(self, call: DifferentiableCall) -> None:
        """Record the derivative of a call in a separate region, and complete the op of the call."""
        cotangents: list[Proxy] = []
        tangents = [self._tangent(self._like(call, output), cotangents) for output in call.outputs]
        backward = Region(self._recorder.trace, self._recorder.tensors)
        is_users = kind_of_class(call.kind) is CodeKind.USER
        before = self._recording.observer.writes() if is_users else ()
        with backward.recording(), self._recorder.switches.autograd_in_this_thread():
            computed = _gradients(call, tangents)
            gradients = [
                None if gradient is None else _conformed(call, tensor, gradient)
                for tensor, gradient in zip(call.wanted, computed, strict=True)
            ]
        after = self._recording.observer.writes() if is_users else ()
        if len(before) != len(after) or not all(map(_is_same_write, before, after)):
            raise call.refuse(f"the derivative of {call.name} changes Python objects")
        into: dict[str, Proxy] = {}
        for names, tensor, gradient in zip(call.names, call.wanted, gradients, strict=True):
            if gradient is not None:
                into |= dict(zip(names, map(self._recorder.tensors.proxy_of, carrying(gradient)), strict=True))
                if is_wrapper(tensor):
                    self._uses.setdefault(self._values(tensor), []).append(_Use(gradient, call.op.use))
        self._complete(call, call.op, backward, cotangents, into)

    def _complete(
        self, call: DifferentiableCall, op: WrapperOp, backward: Region, cotangents: list[Proxy], into: Any
    ) -> None:
        effects = backward.effects()
        if effects.mutates or (effects.visible and not backward.only_communicates()):
            raise call.refuse(f"the derivative of {call.name} writes, or has other effects")
        written = op.complete(backward, cotangents, into)
        if written is not None:
            raise call.refuse(
                f"the derivative of {call.name} needs a tensor, {written}, that is written after the call"
            )
        self._ops.append(op)

    def _like(self, call: DifferentiableCall, output: torch.Tensor) -> torch.Tensor:
        """A tensor like the gradient of a result."""
        if not is_wrapper(output):
            return output
        values = self._values(output)
        carriers = self._recording.carriers
        if any(carriers[value].name in self._returned for value in values):
            outer = self._coerced(output)
            self.settle(values, outer)
            self._uses.setdefault(values, []).insert(0, _Use(outer, self._replace_outputs))
        gradient = self._gradient_of(call, output, call.op.position() + 1)
        return self._coerced(output) if gradient is None else gradient

    def _coerced(self, output: torch.Tensor) -> torch.Tensor:
        """A tensor like the gradient that autograd passes to the program for ``output``."""
        coerce = getattr(output, "__coerce_tangent_metadata__", None)
        if coerce is None:
            return output
        with Region(self._recorder.trace, self._recorder.tensors).recording(), torch.no_grad():
            gradient: torch.Tensor = coerce()
        return gradient

    def _replace_outputs(self, others: dict[str, Proxy]) -> None:
        self._outputs[:] = [others.get(proxy.name, proxy) for proxy in self._outputs]

    def _gradient_of(self, call: DifferentiableCall, tensor: torch.Tensor, position: int) -> torch.Tensor | None:
        """A tensor like the sum of the gradients of a wrapper; None if there is no gradient.

        If gradients have different contexts, an op is inserted that returns the wrapper once for each use: its
        derivative adds the gradients.

        Args:
            position: the index from which on the ops of the trace can use the wrapper's values.
        """
        values = self._values(tensor)
        uses = self._uses.get(values, [])
        if len(uses) < 2:
            return uses[0].gradient if uses else None
        # of another shape, they cannot be added as inner tensors
        if _fits(tensor, uses[0].gradient) and _are_alike([use.gradient for use in uses]):
            return uses[0].gradient
        recorder = self._recorder
        carriers = [self._recording.carriers[value] for value in values]
        parts = list(carrying(tensor))
        forward, backward = (Region(recorder.trace, recorder.tensors) for _ in range(2))
        with forward.recording(), torch.no_grad(), DisableTorchFunction():
            copies = [recorder.call(torch.ops.aten.alias.default, (part,), {}) for _ in uses for part in parts]
        data = [value.proxy.name for value in values]
        op = WrapperOp(recorder, forward, dict(zip(data, carriers, strict=True)))
        outputs = op.write([recorder.tensors.proxy_of(copy) for copy in copies], len(copies), position)
        cotangents: list[Proxy] = []
        tangents = [self._tangent(use.gradient, cotangents) for use in uses]
        with backward.recording(), torch.no_grad():
            total = tangents[0]
            for tangent in tangents[1:]:
                total = torch.ops.aten.add.Tensor(total, tangent)
            total = _conformed(call, tensor, total)
        into = dict(zip(data, map(recorder.tensors.proxy_of, carrying(total)), strict=True))
        self._complete(call, op, backward, cotangents, into)
        for index, use in enumerate(uses):
            inner = outputs[index * len(parts) : (index + 1) * len(parts)]
            use.place_in({carrier.name: output for carrier, output in zip(carriers, inner, strict=True)})
        return total

    def settle(self, values: Values, gradient: torch.Tensor) -> None:
        """Store the layout of the gradient of an input or a result of the program, and of wrappers inside it."""
        rest = iter(values)
        for wrapper in _wrappers_in(gradient):
            inner = tuple([next(rest) for _ in carrying(wrapper)]) if wrapper is not gradient else values
            self._recording.gradient_layout(inner).settle(_with_gradient(wrapper))

    def _tangent(self, like: torch.Tensor, cotangents: list[Proxy]) -> torch.Tensor:
        """A tensor like ``like`` with new values, which are appended to ``cotangents``."""
        recorder = self._recorder
        if is_wrapper(like):
            parts, context = flattened(like)
            carrying_ = gradient_parts(parts)
            tangents = {
                name: self._tangent(part, cotangents) if name in carrying_ else part for name, part in parts.items()
            }
            return made_like(like, tangents, context)
        proxy = recorder.tensors.proxy_of(like)
        stride = contiguous_stride(proxy.shape) if overlaps_itself(proxy) else proxy.stride
        name, storage = recorder.trace.names.intermediate(), recorder.trace.storages.new()
        proxy = replace(proxy, name=name, requires_grad=False, storage=storage, offset=0, stride=stride)
        cotangents.append(proxy)
        return recorder.tensors.traced(Variable(proxy))


def _gradients(call: DifferentiableCall, tangents: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    try:
        with _without_hooks(call.wanted), torch.autograd.set_detect_anomaly(False):  # it would read values
            return torch.autograd.grad(call.outputs, call.wanted, tangents, allow_unused=True)
    except DataDependentError as error:
        raise call.refuse(f"the derivative of {call.name} reads a value of a tensor") from error
    except AcquisitionError:
        raise
    except Exception as error:
        raise call.refuse(f"the derivative of {call.name} raises {type(error).__name__}, {error}") from error


@contextmanager
def _without_hooks(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Disable hooks on tensors while a derivative is recorded: they run when gradients are computed."""
    held = [hooks for tensor in tensors if (hooks := tensor._backward_hooks)]
    copies = [dict(hooks) for hooks in held]
    for hooks in held:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, copy in zip(held, copies, strict=True):
            hooks.update(copy)


def _wrappers_in(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A wrapper, and the wrappers inside it that carry gradients."""
    yield tensor
    for part in _inner_wrappers(flattened(tensor)[0]):
        yield from _wrappers_in(part)


def _inner_wrappers(parts: dict[str, Any]) -> list[torch.Tensor]:
    return [parts[name] for name in parts if name in gradient_parts(parts) and is_wrapper(parts[name])]


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a gradient that requires grad, as the context may include ``requires_grad``."""
    return tensor if tensor.requires_grad else tensor.requires_grad_()


def _are_alike(gradients: list[torch.Tensor]) -> bool:
    """Whether the sum of wrappers is the sum of their inner tensors."""
    try:
        first, *others = [_layout(gradient) for gradient in gradients]
    except NotComparableError:
        return False
    return all(other == first for other in others)


def _layout(gradient: torch.Tensor) -> Any:
    parts, context = flattened(_with_gradient(gradient))
    inner = [_layout(part) for part in _inner_wrappers(parts)]
    return type(gradient), tuple(parts), facts(context), tuple(gradient.shape), tuple(gradient.stride()), inner


def _conformed(call: DifferentiableCall, tensor: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient whose inner tensors have the shapes of the tensor's; converted to the tensor's context if needed."""
    described = f"the gradient that {call.name} returns"
    if type(gradient) is not type(tensor) and (is_wrapper(tensor) or is_wrapper(gradient)):
        expected = type(tensor).__qualname__
        kind = type(gradient if is_wrapper(gradient) else tensor)
        raise call.refuse(f"{described} is not of the class of the tensor, {expected}", kind)
    if not is_wrapper(tensor) or _fits(tensor, gradient) or _fits(tensor, gradient, any_shape=True):
        return gradient
    coerce = getattr(gradient, "__coerce_same_metadata_as_tangent__", None)
    with torch.no_grad():
        coerced = None if coerce is None else coerce(flattened(tensor)[1])
    if coerced is None or not _fits(tensor, coerced):
        raise call.refuse(f"{described} has another context than the tensor", type(gradient))
    result: torch.Tensor = coerced
    return result


def _fits(tensor: torch.Tensor, gradient: torch.Tensor, *, any_shape: bool = False) -> bool:
    """Whether the inner tensors of a gradient can be gradients of the tensor's inner tensors.

    Args:
        any_shape: whether inner tensors may have other shapes: a sharded tensor can have a replicated gradient.
    """
    inner_tensors, parts = flattened(tensor)[0], flattened(gradient)[0]
    if any_shape and gradient_parts(inner_tensors) != gradient_parts(parts):
        return False
    return all(
        _carrier_fits(inner_tensors[name], parts.get(name), any_shape)
        if name in gradient_parts(inner_tensors)
        else _part_fits(inner_tensors.get(name), parts.get(name))
        for name in inner_tensors | parts
    )


def _carrier_fits(part: torch.Tensor, gradient: Any, any_shape: bool) -> bool:
    same = type(part) is type(gradient) or not (is_wrapper(part) or is_wrapper(gradient))
    if not isinstance(gradient, torch.Tensor) or not same or part.dtype != gradient.dtype:
        return False
    if is_wrapper(part):
        return part.shape == gradient.shape and _fits(part, gradient, any_shape=any_shape)
    return any_shape or part.shape == gradient.shape


def _part_fits(part: Any, gradient: Any) -> bool:
    if part is None or gradient is None:  # a jagged tensor may know its longest length, stored as a shape
        other = gradient if part is None else part
        return other is None or (isinstance(other, torch.Tensor) and not other.numel())
    if not isinstance(part, torch.Tensor) or not isinstance(gradient, torch.Tensor):
        return part is gradient or bool(facts(part) == facts(gradient))
    return part is gradient or (part.shape == gradient.shape and not part.numel())


def _is_same_write(one: Write, other: Write) -> bool:
    """Whether two records of writes, taken one after the other, describe the same write."""

    def same(value: Any, again: Any) -> bool:
        if isinstance(value, list | tuple | dict) and type(value) is type(again) and len(value) == len(again):
            pairs = zip(*[each.items() if isinstance(each, dict) else each for each in (value, again)], strict=True)
            return all(same(*pair) for pair in pairs)
        return value is again or (is_plain(value) and identical(again, value))

    return one.target == other.target and one.kind is other.kind and same(one.value, other.value)

"""The derivatives of calls with wrapper subclasses, recorded when the program has ended: those of the last call first.

Autograd runs through what it recorded of each call, with gradients of the classes and contexts that eager has: a matmul
of a replicated and a sharded `DTensor` gives partial sums as a gradient of the first. A value that several calls use
gets the sum of its gradients as inner tensors, or, where their contexts differ, that which the class makes of them.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.subclasses import has_torch_dispatch
from thunder_core.acquire.variable import Variable
from thunder_core.acquire.wrapper_gradients import DifferentiableCall
from thunder_core.acquire.wrapper_line import WrapperLine
from thunder_core.acquire.wrapper_parts import carrying
from thunder_core.errors import AcquisitionError
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.observer import Observer, Write
from thunder_core.guards.plain import identical, is_plain
from thunder_core.guards.wrapper_gradients import carries_gradient
from thunder_core.guards.wrapper_guard import NotComparableError, facts, flattened
from thunder_core.ir.annotation import contiguous_stride
from thunder_core.ir.geometry import overlaps_itself
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.pytorch_internals import DisableTorchFunction

Values = tuple[Variable, ...]
"""The inner tensors of a wrapper that gradients go through."""


@dataclass(frozen=True)
class _Use:
    """Where the program uses a wrapper.

    Attributes:
        gradient: a tensor like the gradient that it gives.
        place_in: puts other values in place of the wrapper's there, which it is given by name.
    """

    gradient: torch.Tensor
    place_in: Callable[[dict[str, Proxy]], None]


@dataclass(frozen=True)
class _Outside:
    """Values from outside that the calls in a checkpoint region use, each with a call and a wrapper of it."""

    uses: list[tuple[Values, DifferentiableCall, torch.Tensor, _Use]]


def record_derivatives(recorder: Recorder, observer: Observer, outputs: list[Proxy]) -> None:
    """Complete the lines of all calls of a program.

    Args:
        outputs: those of the trace.

    Raises:
        UnsupportedError: a derivative is not one of inner tensors, or does more than to compute.
    """
    scope = _Scope(recorder, observer, outputs)
    for values, (_, _, gradient) in scope.record(recorder.differentiable_calls).items():
        scope.settle(values, gradient)
    recorder.differentiable_calls.clear()
    scope.finish({proxy.name for proxy in outputs})


def record_derivatives_of_region(recorder: Recorder, observer: Observer, region: Region, first: int) -> None:
    """Complete the lines of the calls in a checkpoint region that is recorded now.

    Args:
        first: the position of the first of these calls.

    Raises:
        UnsupportedError: as for `record_derivatives`; or a wrapper that requires grad leaves the region.
    """
    scope = _Scope(recorder, observer, [])
    found = scope.record(recorder.differentiable_calls[first:])
    uses = [  # without what autograd recorded
        (
            values,
            replace(call, wanted=[], outputs=[]),
            tensor,
            _Use(gradient, partial(_use_in_region, recorder, call.line.symbol)),
        )
        for values, (call, tensor, gradient) in found.items()
    ]
    last = replace(recorder.differentiable_calls[-1], wanted=[], outputs=[])
    recorder.differentiable_calls[first:] = [_Outside(uses)]
    del found
    scope.finish(_leaving(recorder, region, last))


def _use_in_region(recorder: Recorder, symbol: Symbol, others: dict[str, Proxy]) -> None:
    """Give other values to the line of a region, the one in which ``symbol`` is called."""

    def has(body: Trace) -> bool:
        return any(line.symbol is symbol or any(map(has, bodies_of(line))) for line in body.symbols)

    lines = recorder.trace.lines
    index = next(index for index, line in enumerate(lines) if any(map(has, bodies_of(line))))
    args = [others.get(arg.name, arg) if isinstance(arg, TensorProxy) else arg for arg in lines[index].args]
    lines[index] = replace(lines[index], args=tuple(args))


def _leaving(recorder: Recorder, region: Region, last: DifferentiableCall) -> set[str]:
    """The names of values of a region that the program still holds."""
    carriers, defined = recorder.inputs.carriers, region.defined()
    for collect in (gc.collect, None):
        live = list(map(recorder.tensors.variable, region.live_tensors()))
        if not any(variable in carriers and carriers[variable].name in defined for variable in live):
            return {variable.proxy.name for variable in live}
        if collect is not None:
            collect()
    raise last.refuse("a tensor that requires grad leaves the checkpoint region that it is computed in")


class _Scope:
    """The calls of a program, or of a checkpoint region."""

    def __init__(self, recorder: Recorder, observer: Observer, outputs: list[Proxy]) -> None:
        self._recorder = recorder
        self._observer = observer
        self._outputs = outputs
        self._returned = {proxy.name for proxy in outputs}
        self._uses: dict[Values, list[_Use]] = {}
        self._lines: list[WrapperLine] = []

    def record(self, calls: list[Any]) -> dict[Values, tuple[DifferentiableCall, torch.Tensor, torch.Tensor]]:
        """Record the derivatives of ``calls``.

        Returns:
            For wrappers that no call of these computed a call that uses it, the wrapper, and one like its gradient.
        """
        own = [call for call in calls if isinstance(call, DifferentiableCall)]
        computed = {self._values(output) for call in own for output in call.outputs}
        given: dict[Values, tuple[DifferentiableCall, torch.Tensor]] = {}
        for call in reversed(calls):
            if isinstance(call, _Outside):
                for values, user, tensor, use in call.uses:
                    self._uses.setdefault(values, []).append(use)
                    given[values] = user, tensor
                continue
            self._differentiate(call)
            given |= {self._values(tensor): (call, tensor) for tensor in filter(_is_wrapper, call.wanted)}
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

    def finish(self, returned: set[str]) -> None:
        """Finish the lines, of which the last call's is first."""
        for line in self._lines:
            line.finish(returned)

    def _values(self, tensor: torch.Tensor) -> Values:
        return tuple(map(self._recorder.tensors.variable, carrying(tensor)))

    def _differentiate(self, call: DifferentiableCall) -> None:
        """Record the derivative of a call in a region of its own, and complete the line."""
        cotangents: list[Proxy] = []
        tangents = [self._tangent(self._like(call, output), cotangents) for output in call.outputs]
        backward = Region(self._recorder.trace, self._recorder.tensors)
        is_users = kind_of_class(call.kind) is CodeKind.USER
        before = self._observer.writes() if is_users else ()
        with backward.recording():
            found = _gradients(call, tangents)
            gradients = [
                None if gradient is None else _conformed(call, tensor, gradient)
                for tensor, gradient in zip(call.wanted, found, strict=True)
            ]
        after = self._observer.writes() if is_users else ()
        if len(before) != len(after) or not all(map(_is_same_write, before, after)):
            raise call.refuse(f"the derivative of {call.name} changes Python objects")
        into: dict[str, Proxy] = {}
        for names, tensor, gradient in zip(call.names, call.wanted, gradients, strict=True):
            if gradient is not None:
                into |= dict(zip(names, map(self._recorder.tensors.proxy_of, carrying(gradient)), strict=True))
                if _is_wrapper(tensor):
                    self._uses.setdefault(self._values(tensor), []).append(_Use(gradient, call.line.use))
        self._complete(call, call.line, backward, cotangents, into)

    def _complete(
        self, call: DifferentiableCall, line: WrapperLine, backward: Region, cotangents: list[Proxy], into: Any
    ) -> None:
        effects = backward.effects()
        if effects.mutates or (effects.visible and not backward.only_communicates()):
            raise call.refuse(f"the derivative of {call.name} writes, or does more than to compute")
        written = line.complete(backward, cotangents, into)
        if written is not None:
            raise call.refuse(
                f"the derivative of {call.name} needs a tensor, {written}, that is written after the call"
            )
        self._lines.append(line)

    def _like(self, call: DifferentiableCall, output: torch.Tensor) -> torch.Tensor:
        """A tensor like the gradient of a result."""
        if not _is_wrapper(output):
            return output
        values = self._values(output)
        carriers = self._recorder.inputs.carriers
        if any(carriers[value].name in self._returned for value in values):
            outer = self._coerced(output)
            self.settle(values, outer)
            self._uses.setdefault(values, []).insert(0, _Use(outer, self._replace_outputs))
        gradient = self._gradient_of(call, output, call.line.position() + 1)
        return self._coerced(output) if gradient is None else gradient

    def _coerced(self, output: torch.Tensor) -> torch.Tensor:
        """A tensor like the gradient that comes from outside of the program."""
        coerce = getattr(output, "__coerce_tangent_metadata__", None)
        if coerce is None:
            return output
        with Region(self._recorder.trace, self._recorder.tensors).recording(), torch.no_grad():
            gradient: torch.Tensor = coerce()
        return gradient

    def _replace_outputs(self, others: dict[str, Proxy]) -> None:
        self._outputs[:] = [others.get(proxy.name, proxy) for proxy in self._outputs]

    def _gradient_of(self, call: DifferentiableCall, tensor: torch.Tensor, position: int) -> torch.Tensor | None:
        """A tensor like the sum of the gradients of a wrapper, of whose values the program has those from a line on.

        Where gradients have different contexts, a line of several results, one for each use, stands there: its
        derivative is their sum. None where there is no gradient.
        """
        values = self._values(tensor)
        uses = self._uses.get(values, [])
        if len(uses) < 2 or _are_alike([use.gradient for use in uses]):
            return uses[0].gradient if uses else None
        recorder = self._recorder
        carriers = [recorder.inputs.carriers[value] for value in values]
        parts = list(carrying(tensor))
        forward, backward = (Region(recorder.trace, recorder.tensors) for _ in range(2))
        with forward.recording(), torch.no_grad(), DisableTorchFunction():
            copies = [recorder.call(torch.ops.aten.alias.default, (part,), {}) for _ in uses for part in parts]
        data = [value.proxy.name for value in values]
        line = WrapperLine(recorder, forward, dict(zip(data, carriers, strict=True)))
        outputs = line.write([recorder.tensors.proxy_of(copy) for copy in copies], len(copies), position)
        cotangents: list[Proxy] = []
        tangents = [self._tangent(use.gradient, cotangents) for use in uses]
        with backward.recording(), torch.no_grad():
            total = tangents[0]
            for tangent in tangents[1:]:
                total = torch.ops.aten.add.Tensor(total, tangent)
            total = _conformed(call, tensor, total)
        into = dict(zip(data, map(recorder.tensors.proxy_of, carrying(total)), strict=True))
        self._complete(call, line, backward, cotangents, into)
        for index, use in enumerate(uses):
            own = outputs[index * len(parts) : (index + 1) * len(parts)]
            use.place_in({carrier.name: output for carrier, output in zip(carriers, own, strict=True)})
        return total

    def settle(self, values: Values, gradient: torch.Tensor) -> None:
        """Remember how the gradient of an input, or of a result, of the program is laid out; those inside, too."""
        rest = iter(values)
        for wrapper in _wrappers_in(gradient):
            own = tuple([next(rest) for _ in carrying(wrapper)]) if wrapper is not gradient else values
            self._recorder.inputs.gradient_layout(own).settle(_with_gradient(wrapper))

    def _tangent(self, like: torch.Tensor, cotangents: list[Proxy]) -> torch.Tensor:
        """A tensor like ``like`` of new values, which are added to ``cotangents``."""
        recorder = self._recorder
        if _is_wrapper(like):
            parts, context = flattened(like)
            tangents = {
                name: self._tangent(part, cotangents) if carries_gradient(part) else part
                for name, part in parts.items()
            }
            with torch.no_grad():
                kind: Any = type(like)
                tangent: torch.Tensor = kind.__tensor_unflatten__(tangents, context, like.shape, like.stride())
                return tangent
        proxy = recorder.tensors.proxy_of(like)
        stride = contiguous_stride(proxy.shape) if overlaps_itself(proxy) else proxy.stride
        name, storage = recorder.trace.names.intermediate(), recorder.trace.storages.new()
        proxy = replace(proxy, name=name, requires_grad=False, storage=storage, offset=0, stride=stride)
        cotangents.append(proxy)
        return recorder.tensors.traced(Variable(proxy))


def _gradients(call: DifferentiableCall, tangents: list[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    try:
        with _without_hooks(call.wanted):
            return torch.autograd.grad(call.outputs, call.wanted, tangents, allow_unused=True)
    except AcquisitionError:
        raise
    except Exception as error:
        raise call.refuse(f"the derivative of {call.name} raises {type(error).__name__}, {error}") from error


@contextmanager
def _without_hooks(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Hooks on tensors run when gradients are computed, and not while that is recorded."""
    held = [hooks for tensor in tensors if (hooks := tensor._backward_hooks)]
    copies = [dict(hooks) for hooks in held]
    for hooks in held:
        hooks.clear()
    try:
        yield
    finally:
        for hooks, copy in zip(held, copies, strict=True):
            hooks.update(copy)


def _is_wrapper(tensor: torch.Tensor) -> bool:
    return has_torch_dispatch(type(tensor))


def _wrappers_in(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A wrapper, and the wrappers inside that gradients go through."""
    yield tensor
    for part in flattened(tensor)[0].values():
        if carries_gradient(part) and _is_wrapper(part):
            yield from _wrappers_in(part)


def _with_gradient(tensor: torch.Tensor) -> torch.Tensor:
    """A gradient that requires grad, as the context may say whether it does."""
    return tensor if tensor.requires_grad else tensor.requires_grad_()


def _are_alike(gradients: list[torch.Tensor]) -> bool:
    """Whether the sum of wrappers is that of their inner tensors."""
    try:
        first, *others = [_layout(gradient) for gradient in gradients]
    except NotComparableError:
        return False
    return all(other == first for other in others)


def _layout(gradient: torch.Tensor) -> Any:
    parts, context = flattened(_with_gradient(gradient))
    inner = [_layout(part) for part in parts.values() if carries_gradient(part) and _is_wrapper(part)]
    return type(gradient), tuple(parts), facts(context), tuple(gradient.shape), tuple(gradient.stride()), inner


def _conformed(call: DifferentiableCall, tensor: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """A gradient whose inner tensors have the shapes of those of the tensor; if need be, with the tensor's context."""
    described = f"the gradient that {call.name} gives"
    if type(gradient) is not type(tensor) and (_is_wrapper(tensor) or _is_wrapper(gradient)):
        expected = type(tensor).__qualname__
        raise call.refuse(f"{described} is not of the class of the tensor, {expected}", type(gradient))
    if not _is_wrapper(tensor) or _fits(tensor, gradient):
        return gradient
    coerce = getattr(gradient, "__coerce_same_metadata_as_tangent__", None)
    with torch.no_grad():
        coerced = None if coerce is None else coerce(flattened(tensor)[1])
    if coerced is None or not _fits(tensor, coerced):
        raise call.refuse(f"{described} has another context than the tensor", type(gradient))
    result: torch.Tensor = coerced
    return result


def _fits(tensor: torch.Tensor, gradient: torch.Tensor) -> bool:
    """Whether the inner tensors of a gradient can be the gradients of those of the tensor."""
    own, parts = flattened(tensor)[0], flattened(gradient)[0]
    return tuple(own) == tuple(parts) and all(_part_fits(part, parts[name]) for name, part in own.items())


def _part_fits(part: Any, gradient: Any) -> bool:
    if carries_gradient(part):
        same = type(part) is type(gradient) or not (_is_wrapper(part) or _is_wrapper(gradient))
        if not same or part.shape != gradient.shape or part.dtype != gradient.dtype:
            return False
        return not _is_wrapper(part) or _fits(part, gradient)
    if not isinstance(part, torch.Tensor) or not isinstance(gradient, torch.Tensor):
        return part is gradient or bool(facts(part) == facts(gradient))
    return part is gradient or (part.shape == gradient.shape and not part.numel())


def _is_same_write(one: Write, other: Write) -> bool:
    """Whether two writes, found one after the other, are one."""

    def same(value: Any, again: Any) -> bool:
        if isinstance(value, list | tuple | dict) and type(value) is type(again) and len(value) == len(again):
            pairs = zip(*[each.items() if isinstance(each, dict) else each for each in (value, again)], strict=True)
            return all(same(*pair) for pair in pairs)
        return value is again or (is_plain(value) and identical(again, value))

    return one.target == other.target and one.kind is other.kind and same(one.value, other.value)

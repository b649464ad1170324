"""Calls with wrapper subclasses that require grad: one line of two programs, forward and backward.

Autograd acts above ``__torch_dispatch__``: it knows the derivative of the operator, and computes it with operators on
the outer tensors. So it does here, at once: what the class makes of the operator is the program of forward, and what it
makes of the derivative that of backward. Both are of inner tensors alone.

To the program, the inner tensors have no gradients, as in eager. The trace has another value for each that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from thunder_core.acquire.autograd_functions import Applied, apply_of
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.subclasses import has_torch_dispatch
from thunder_core.acquire.traced_tensor import is_traced, variable_of
from thunder_core.acquire.variable import Variable, metadata_key
from thunder_core.acquire.wrapper_parts import carrying, refuse_wrapper
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.guards.node import own_attributes
from thunder_core.guards.observer import Observer, Write
from thunder_core.guards.plain import identical, is_plain
from thunder_core.guards.source import Source
from thunder_core.guards.steps import ItemSource
from thunder_core.guards.wrapper_gradients import InnerTensorsSource, carries_gradient, inner_tensors
from thunder_core.guards.wrapper_guard import NotComparableError, facts, flattened
from thunder_core.ir.annotation import contiguous_stride
from thunder_core.ir.geometry import overlaps_itself
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    disable_current_modes,
    is_view,
    no_dispatch,
)
from thunder_core.symbols.opaque import callable_symbol
from thunder_core.symbols.registry import registry

SourceOf = Callable[[Any], Source | None]


def call_with_gradients(
    recorder: Recorder, observer: Observer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a call of which tensors among the arguments require grad.

    Raises:
        UnsupportedError: its derivative is not one of inner tensors, or the call writes.
    """
    # the mode is not active while it handles a call, but while an autograd.Function is applied
    outside_mode: Any = DisableTorchFunction if isinstance(func, Applied) else DisableTorchFunctionSubclass
    name = getattr(func, "__name__", str(func))
    if recorder.trace.outer_lines:
        kind = next(type(each) for each in iterate_leaves((args, kwargs)) if has_torch_dispatch(type(each)))
        raise refuse_wrapper(kind, f"{name} is called in a checkpoint region, or in a branch of torch.cond")
    forward = Region(recorder.trace, recorder.tensors)
    with outside_mode():
        tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        wanted = list({id(tensor): tensor for tensor in tensors if requires_grad(recorder, tensor)}.values())
        with recorder.suspension:  # what makes an input calls functions of Thunder's own
            given = _given(recorder, observer, wanted, name)
    with forward.recording():
        result = func(*args, **kwargs)
    with outside_mode():
        outputs = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not outputs and not forward.effects().mutates:
            recorder.trace.lines += forward.lines
            return result
        kind = next(type(tensor) for tensor in tensors if has_torch_dispatch(type(tensor)))
        call = _Call(recorder, observer, name, kind, wanted, given, forward)
        call.differentiate(outputs)
        return map_leaves(lambda leaf: _leaf(recorder, leaf) if any(leaf is each for each in outputs) else leaf, result)


def _given(recorder: Recorder, observer: Observer, wanted: Sequence[torch.Tensor], name: str) -> dict[str, Proxy]:
    """For each value of `carrying` in tensors that require grad what autograd knows in its place, by its name."""
    given: dict[str, Proxy] = {}
    for tensor in wanted:
        known = _carriers(recorder, observer.source_of, tensor)
        if given.keys() & {data.name for data, _ in known}:
            raise refuse_wrapper(type(tensor), f"{name} is called with tensors that share an inner tensor")
        given |= {data.name: carrier for data, carrier in known}
    return given


@dataclass
class _Call:
    """A call whose forward was recorded.

    Attributes:
        name, kind: of the function, and of a wrapper that it is called with.
        wanted, given: the arguments that require grad, and what `_given` says of them.
        forward: its lines.
    """

    recorder: Recorder
    observer: Observer
    name: str
    kind: type
    wanted: list[torch.Tensor]
    given: dict[str, Proxy]
    forward: Region

    def differentiate(self, outputs: list[torch.Tensor]) -> None:
        """Record the derivative of the results that require grad, and add the line of both."""
        recorder, forward = self.recorder, self.forward
        if forward.effects().mutates or forward.effects().external:
            raise refuse_wrapper(self.kind, f"{self.name} writes, or does more than to compute, while autograd records")
        with forward.recording():
            for output in outputs:
                _renew(recorder, output, forward.defined())
        values = [recorder.tensors.variable(part) for output in outputs for part in carrying(output)]
        if len(set(values)) < len(values) or any(each.proxy.name not in forward.defined() for each in values):
            raise refuse_wrapper(self.kind, f"{self.name} gives a tensor that it was given, or one twice")
        cotangents: list[Proxy] = []
        tangents = [_tangent(recorder, output, cotangents) for output in outputs]
        backward = Region(recorder.trace, recorder.tensors)
        into = self._gradients(backward, outputs, tangents)
        held = [part for output in outputs if not is_traced(output) for part in carrying(output)]
        inner = set(map(recorder.tensors.variable, held))
        _Line(recorder, forward, backward, self.given, into).write(values, cotangents, inner)

    def _gradients(
        self, backward: Region, outputs: list[torch.Tensor], tangents: list[torch.Tensor]
    ) -> dict[str, Proxy]:
        """Record the derivative in ``backward``: the gradients of arguments, by the names of their values."""
        is_users = kind_of_class(self.kind) is CodeKind.USER
        before = self.observer.writes() if is_users else ()
        with backward.recording():
            found = torch.autograd.grad(outputs, self.wanted, tangents, allow_unused=True)
        after = self.observer.writes() if is_users else ()
        if len(before) != len(after) or not all(map(_is_same_write, before, after)):
            raise refuse_wrapper(self.kind, f"the derivative of {self.name} changes Python objects")
        if backward.effects().external or backward.effects().mutates:
            raise refuse_wrapper(self.kind, f"the derivative of {self.name} writes, or does more than to compute")
        proxy_of = self.recorder.tensors.proxy_of
        into: dict[str, Proxy] = {}
        for tensor, gradient in zip(self.wanted, found, strict=True):
            if gradient is not None:
                _check_gradient(tensor, gradient, f"the gradient that {self.name} gives")
                pairs = zip(carrying(tensor), carrying(gradient), strict=True)
                into |= {proxy_of(one).name: proxy_of(other) for one, other in pairs}
        return into


def _renew(recorder: Recorder, wrapper: torch.Tensor, defined: set[str]) -> None:
    """Replace inner tensors of a wrapper that are arguments of the call by views of them."""
    if not has_torch_dispatch(type(wrapper)):
        return
    for name, part in flattened(wrapper)[0].items():
        if not carries_gradient(part):
            continue
        if has_torch_dispatch(type(part)):
            _renew(recorder, part, defined)
            continue
        with recorder.suspension:
            is_given = recorder.tensors.proxy_of(part).name not in defined
        if is_given:
            with torch.no_grad(), DisableTorchFunction():
                setattr(wrapper, name, recorder.call(torch.ops.aten.alias.default, (part,), {}))


def _is_same_write(one: Write, other: Write) -> bool:
    """Whether two writes, found one after the other, are one."""

    def same(value: Any, again: Any) -> bool:
        if isinstance(value, list | tuple | dict) and type(value) is type(again) and len(value) == len(again):
            pairs = zip(*[each.items() if isinstance(each, dict) else each for each in (value, again)], strict=True)
            return all(same(*pair) for pair in pairs)
        return value is again or (is_plain(value) and identical(again, value))

    return one.target == other.target and one.kind is other.kind and same(one.value, other.value)


def requires_grad(recorder: Recorder, tensor: torch.Tensor) -> bool:
    """Whether autograd records what is computed with a tensor; PyTorch itself knows it of a traced one, too, then."""
    if not is_traced(tensor):
        return tensor.requires_grad
    required = recorder.tensors.requires_grad(recorder.tensors.variable(tensor))
    if required and not tensor.requires_grad:
        with DisableTorchFunction():
            tensor.requires_grad_()
    return required


def _leaf(recorder: Recorder, tensor: torch.Tensor) -> torch.Tensor:
    """A result as a leaf of PyTorch's autograd: the derivative of the next call ends there."""
    if not is_view(tensor):
        with no_dispatch(), DisableTorchFunction():
            return tensor.detach_().requires_grad_()
    variable = variable_of(tensor)
    if variable is not None:
        leaf = recorder.tensors.traced(variable, type(tensor))
    else:
        kind: Any = type(tensor)
        with torch.no_grad():
            parts, context = flattened(tensor)
            leaf = kind.__tensor_unflatten__(parts, context, tensor.shape, tensor.stride())
    vars(leaf).update(own_attributes(tensor))
    with DisableTorchFunction():
        return leaf.requires_grad_()


def _carriers(recorder: Recorder, source_of: SourceOf, tensor: torch.Tensor) -> list[tuple[TensorProxy, TensorProxy]]:
    """The values of `carrying` in the program, each with the one that has its gradient."""
    variables = [recorder.tensors.variable(part) for part in carrying(tensor)]
    if not has_torch_dispatch(type(tensor)):
        return [(variable.proxy, variable.proxy) for variable in variables]
    carriers = recorder.inputs.carriers
    if any(variable not in carriers for variable in variables):
        source = source_of(tensor)
        if source is None:
            raise refuse_wrapper(type(tensor), "the program makes a tensor that requires grad")
        with disable_current_modes():
            lifted = list(_lift(recorder, tensor, source))
        carriers |= dict(zip(variables, lifted, strict=True))
    return [(variable.proxy, carriers[variable]) for variable in variables]


def _lift(recorder: Recorder, wrapper: torch.Tensor, source: Source) -> Iterator[TensorProxy]:
    inner = InnerTensorsSource(source)
    for index, value in enumerate(inner_tensors(wrapper)):
        path = ItemSource(inner, index)
        if has_torch_dispatch(type(value)):
            yield from _lift(recorder, value, path)
        else:
            yield recorder.inputs.add(value, path).proxy


def _tangent(recorder: Recorder, output: torch.Tensor, cotangents: list[Proxy]) -> torch.Tensor:
    """A tensor like ``output`` for its gradient, of new values, which are added to ``cotangents``."""
    if has_torch_dispatch(type(output)):
        parts, context = flattened(output)
        tangents = {
            name: _tangent(recorder, part, cotangents) if carries_gradient(part) else part
            for name, part in parts.items()
        }
        with torch.no_grad():
            kind: Any = type(output)
            tangent: torch.Tensor = kind.__tensor_unflatten__(tangents, context, output.shape, output.stride())
            return tangent
    names, storages = recorder.trace.names, recorder.trace.storages
    proxy = recorder.tensors.proxy_of(output)
    stride = contiguous_stride(proxy.shape) if overlaps_itself(proxy) else proxy.stride
    made = replace(proxy, name=names.intermediate(), requires_grad=False, storage=storages.new(), offset=0)
    proxy = replace(made, stride=stride)
    cotangents.append(proxy)
    return recorder.tensors.traced(Variable(proxy))


def _check_gradient(tensor: torch.Tensor, gradient: torch.Tensor, described: str) -> None:
    """Refuse a gradient of another class, or with another context, than the tensor's."""
    if type(gradient) is not type(tensor) and (has_torch_dispatch(type(tensor)) or has_torch_dispatch(type(gradient))):
        expected_kind = type(tensor).__qualname__
        raise refuse_wrapper(type(gradient), f"{described} is not of the class of the tensor, {expected_kind}")
    if not has_torch_dispatch(type(tensor)):
        return
    if not gradient.requires_grad:
        gradient.requires_grad_()  # the context may say whether it does
    (parts, context), (own, expected) = flattened(gradient), flattened(tensor)
    try:
        same = tuple(parts) == tuple(own) and facts(context) == facts(expected)
    except NotComparableError:
        same = False
    if not same:
        raise refuse_wrapper(type(gradient), f"{described} has another context than the tensor")
    for name, part in own.items():
        if carries_gradient(part):
            if has_torch_dispatch(type(part)):
                _check_gradient(part, parts[name], described)
        elif not _is_same_part(parts[name], part):
            raise refuse_wrapper(type(gradient), f"{described} has another {name} than the tensor")


def _is_same_part(one: Any, other: Any) -> bool:
    """Whether two parts of wrappers, through which no gradient goes, are alike; of those without elements the shape."""
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return one is other or bool(facts(one) == facts(other))
    return one is other or (one.shape == other.shape and not one.numel())


@dataclass
class _Line:
    """The line of one call.

    Attributes:
        given: for each value that has a gradient what autograd knows in its place, by the value's name.
        into: the gradients in ``backward``, by the same names.
    """

    recorder: Recorder
    forward: Region
    backward: Region
    given: dict[str, Proxy]
    into: dict[str, Proxy]

    def write(self, values: list[Variable], cotangents: list[Proxy], inner: set[Variable]) -> None:
        """Add it.

        Args:
            values: what has gradients from here on.
            cotangents: theirs in ``backward``.
            inner: those that are inner tensors, which the program sees without gradients.
        """
        recorder, defined = self.recorder, self.forward.defined()
        backward = {proxy.name: proxy for proxy in (*self.backward.free(), *self.into.values())}
        for name in (*self.backward.defined(), *[proxy.name for proxy in cotangents]):
            backward.pop(name, None)
        free = {proxy.name: proxy for proxy in (*self.forward.free(), *backward.values()) if proxy.name not in defined}
        free |= {name: replace(proxy, name=name) for name, proxy in self.given.items() if name not in free}
        live = dict.fromkeys(map(recorder.tensors.variable, self.forward.live_tensors()))
        returned = [*values, *[each for each in live if each not in values and each.proxy.name in defined]]
        results = tuple([variable.proxy for variable in returned])
        places = [index for index, name in enumerate(free) if name in self.into]
        gradients = tuple([self.into[name] for name in free if name in self.into])
        with torch.no_grad():
            program = self.forward.body("forward_body", tuple(free.values()), (*results, *backward.values()))
            derivative = self.backward.body("backward_body", (*cotangents, *backward.values()), gradients)
        function = _function(program, derivative, len(values), len(returned), len(free), places)
        outputs = tuple(
            [
                replace(proxy, name=recorder.trace.names.intermediate(), requires_grad=index < len(values))
                for index, proxy in enumerate(results)
            ]
        )
        arguments = tuple([self.given.get(name, proxy) for name, proxy in free.items()])
        symbol = callable_symbol(apply_of(function), "Wrapper_apply")
        recorder.trace.write(symbol, arguments, {}, outputs, self.forward.effects())
        for variable, output in zip(returned, outputs, strict=True):
            if variable in inner:
                recorder.inputs.carriers[variable] = output
                output = replace(output, name=recorder.trace.names.intermediate(), requires_grad=False)
                detach = recorder.inputs.carriers[variable]
                recorder.trace.write(registry.symbol_of(torch.detach), (detach,), {}, output)
            elif output.requires_grad:
                variable.fake = variable.base = None
            variable.proxy = output
            variable.key = metadata_key(output)


def _function(
    program: Trace, derivative: Trace, differentiable: int, returned: int, arguments: int, places: Sequence[int]
) -> type[torch.autograd.Function]:
    """The two programs as one function.

    Args:
        differentiable: how many results of ``program`` have gradients, which are the first arguments of ``derivative``.
        returned: how many the function returns; the others are arguments of ``derivative``.
        arguments: how many the function takes.
        places: of those that ``derivative`` gives the gradients of.
    """
    forward_code, backward_code = compile_trace(program), compile_trace(derivative)
    expected = derivative.inputs[:differentiable]

    class Wrapper(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            values = forward_code(*args)
            ctx.mark_non_differentiable(*values[differentiable:returned])
            ctx.save_for_backward(*values[returned:])
            return tuple(values[:returned])

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *given: Any) -> Any:
            pairs = zip(given, expected, strict=False)
            cotangents = [_laid_out(cotangent, proxy) for cotangent, proxy in pairs]
            found = backward_code(*cotangents, *ctx.saved_tensors)
            gradients: list[Any] = [None] * arguments
            for place, gradient in zip(places, found, strict=True):
                gradients[place] = gradient
            return tuple(gradients)

    return Wrapper


def _laid_out(tensor: torch.Tensor, proxy: Proxy) -> torch.Tensor:
    """A tensor with the strides that the program was recorded with."""
    assert isinstance(proxy, TensorProxy)
    if tensor.stride() == proxy.stride:
        return tensor
    empty = torch.empty_strided(*on_fakes((proxy.shape, proxy.stride)), dtype=tensor.dtype, device=tensor.device)
    return empty.copy_(tensor)

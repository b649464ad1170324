"""Calls with wrapper subclasses that require grad: one line of two programs, forward and backward.

Autograd acts above ``__torch_dispatch__``: it knows the derivative of the operator, and computes it with operators on
the outer tensors. So it does here: what the class makes of the operator is the program of forward, and what it makes of
the derivative that of backward. Both are of inner tensors alone.

How a gradient is laid out (class and context: the placements of a `DTensor`) is decided by the calls that use a value,
not by the value. So the derivatives are recorded in the end, the last call first:
`thunder_core.acquire.wrapper_derivatives`.

To the program, the inner tensors have no gradients, as in eager. The trace has another value for each that has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from thunder_core.acquire.autograd_functions import Applied
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.subclasses import has_torch_dispatch
from thunder_core.acquire.traced_tensor import is_traced, variable_of
from thunder_core.acquire.variable import Variable, metadata_key
from thunder_core.acquire.wrapper_line import WrapperLine
from thunder_core.acquire.wrapper_parts import carrying, refuse_wrapper
from thunder_core.guards.node import own_attributes
from thunder_core.guards.observer import Observer
from thunder_core.guards.source import Source
from thunder_core.guards.steps import ItemSource
from thunder_core.guards.wrapper_gradients import InnerTensorsSource, carries_gradient, inner_tensors
from thunder_core.guards.wrapper_guard import flattened
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    disable_current_modes,
)
from thunder_core.symbols.registry import registry
from thunder_core.tracing.user_frames import user_location

_LEAF = "a leaf Variable that requires grad"
"""Autograd says so of writes; it takes results of calls for leaves while a program is recorded."""
SourceOf = Callable[[Any], Source | None]


@dataclass(eq=False)
class DifferentiableCall:
    """A call that was recorded, with the graph that autograd made of it; its derivative is recorded later.

    Attributes:
        name, kind, location: of the function, of a wrapper that it takes or returns, and of the user's line.
        wanted: the arguments that require grad.
        names: the names that the values of `carrying` in each of them had.
        outputs: the results that require grad.
        line: of the trace.
    """

    name: str
    kind: type
    location: SourceLocation | None
    wanted: list[torch.Tensor]
    names: list[tuple[str, ...]]
    outputs: list[torch.Tensor]
    line: WrapperLine

    def refuse(self, problem: str, kind: type | None = None) -> Exception:
        """The error about this call, at its line."""
        return refuse_wrapper(kind or self.kind, problem, location=self.location)


def call_with_gradients(
    recorder: Recorder, observer: Observer, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a call of which tensors among the arguments require grad.

    Raises:
        UnsupportedError: the call writes, or its result is no value of its own.
    """
    # the mode is not active while it handles a call, but while an autograd.Function is applied
    outside_mode: Any = DisableTorchFunction if isinstance(func, Applied) else DisableTorchFunctionSubclass
    name = getattr(func, "__name__", str(func))
    if len(recorder.trace.outer_lines) > recorder.checkpoints:
        kinds = [type(each) for each in iterate_leaves((args, kwargs)) if has_torch_dispatch(type(each))]
        kind = kinds[0] if kinds else torch.Tensor
        raise refuse_wrapper(kind, f"{name} is called in a branch of torch.cond")
    forward = Region(recorder.trace, recorder.tensors)
    with outside_mode():
        tensors = [leaf for leaf in iterate_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        wanted = list({id(tensor): tensor for tensor in tensors if requires_grad(recorder, tensor)}.values())
        with recorder.suspension:  # what makes an input calls functions of Thunder's own
            given, names = _given(recorder, observer, wanted, name)
    with forward.recording():
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if _LEAF in str(error) and any(not _existed(recorder, tensor) for tensor in wanted):
                kind = next(type(tensor) for tensor in tensors if has_torch_dispatch(type(tensor)))
                raise refuse_wrapper(kind, f"{name} writes while autograd records") from error
            raise
    with outside_mode():
        results = [leaf for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        computed = [leaf for leaf in results if not any(leaf is tensor for tensor in tensors)]
        kind = next((type(tensor) for tensor in (*tensors, *results) if has_torch_dispatch(type(tensor))), torch.Tensor)
        if forward.effects().mutates:
            if len(computed) < len(results):
                raise refuse_wrapper(kind, f"{name} writes while autograd records")
            forward.leave_writes()
            with recorder.suspension:
                given, names = _given(recorder, observer, wanted, name)
        outputs = [leaf for leaf in computed if leaf.requires_grad]
        if not outputs:
            recorder.trace.lines += forward.lines
            return result
        line = WrapperLine(recorder, forward, given)
        _write(recorder, DifferentiableCall(name, kind, user_location(), wanted, names, outputs, line))
        leaves = {id(output): _leaf(recorder, output) for output in outputs}
        return map_leaves(lambda leaf: leaves.get(id(leaf), leaf), result)


def _existed(recorder: Recorder, tensor: torch.Tensor) -> bool:
    """Whether a tensor existed before the program."""
    return id(tensor) in recorder.wrappers or not (is_traced(tensor) or has_torch_dispatch(type(tensor)))


def _given(
    recorder: Recorder, observer: Observer, wanted: Sequence[torch.Tensor], name: str
) -> tuple[dict[str, Proxy], list[tuple[str, ...]]]:
    """What autograd knows in place of each value of `carrying` in tensors that require grad; and the values' names."""
    given: dict[str, Proxy] = {}
    names: list[tuple[str, ...]] = []
    for tensor in wanted:
        known = _carriers(recorder, observer.source_of, tensor)
        if given.keys() & {data.name for data, _ in known}:
            raise refuse_wrapper(type(tensor), f"{name} is called with tensors that share an inner tensor")
        given |= {data.name: carrier for data, carrier in known}
        names.append(tuple([data.name for data, _ in known]))
    return given, names


def _write(recorder: Recorder, call: DifferentiableCall) -> None:
    """Add the line of a call, and remember the call."""
    forward = call.line.forward
    effects = forward.effects()
    if effects.mutates or (effects.visible and not forward.only_communicates()):
        raise call.refuse(f"{call.name} writes, or does more than to compute, while autograd records")
    with forward.recording():
        for output in call.outputs:
            _renew(recorder, output, forward.defined())
    values = [recorder.tensors.variable(part) for output in call.outputs for part in carrying(output)]
    if len(set(values)) < len(values) or any(each.proxy.name not in forward.defined() for each in values):
        raise call.refuse(f"{call.name} gives a tensor that it was given, or one twice")
    held = [part for output in call.outputs if not is_traced(output) for part in carrying(output)]
    inner = set(map(recorder.tensors.variable, held))
    live = dict.fromkeys(map(recorder.tensors.variable, forward.live_tensors()))
    returned = [*values, *[each for each in live if each not in values and each.proxy.name in forward.defined()]]
    outputs = call.line.write([variable.proxy for variable in returned], len(values))
    for variable, proxy in zip(returned, outputs, strict=True):
        _rename(recorder, call.line, variable, proxy, is_inner=variable in inner)
    recorder.differentiable_calls.append(call)


def _rename(recorder: Recorder, line: WrapperLine, variable: Variable, output: TensorProxy, *, is_inner: bool) -> None:
    """Give a value of a call the name that it has outside; inner tensors are seen without gradients."""
    if is_inner:
        recorder.inputs.carriers[variable] = output
        carrier, output = output, replace(output, name=recorder.trace.names.intermediate(), requires_grad=False)
        line.inside[output.name] = line.inside[carrier.name]
        recorder.trace.write(registry.symbol_of(torch.detach), (carrier,), {}, output)
    elif output.requires_grad:
        variable.fake = variable.base = None
    variable.proxy = output
    variable.key = metadata_key(output)


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
            lifted = list(_lift(recorder, tensor, source, iter(variables)))
        carriers |= dict(zip(variables, lifted, strict=True))
    return [(variable.proxy, carriers[variable]) for variable in variables]


def _lift(
    recorder: Recorder, wrapper: torch.Tensor, source: Source, variables: Iterator[Variable]
) -> Iterator[TensorProxy]:
    """Make inputs of the inner tensors of a wrapper, as autograd knows them; those without are ``variables``."""
    own = tuple(islice(variables, sum(1 for _ in carrying(wrapper))))
    inner = InnerTensorsSource(source, recorder.inputs.gradient_layout(own))
    rest = iter(own)
    for index, value in enumerate(inner_tensors(wrapper, inner.layout)):
        path = ItemSource(inner, index)
        if has_torch_dispatch(type(value)):
            yield from _lift(recorder, value, path, rest)
        else:
            next(rest)
            yield recorder.inputs.add(value, path).proxy

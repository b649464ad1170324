"""Calls with wrapper subclasses that require grad: one op with two programs, forward and backward.

Autograd acts above ``__torch_dispatch__``: it computes the derivative of the operator with operators on the outer
tensors. Recording does the same: forward is the program that the class runs for the operator, and backward the program
that it runs for the derivative. Both compute on inner tensors alone.

The layout of a gradient (class and context: the placements of a `DTensor`) depends on the calls that use a value, not
on the value. So the derivatives are recorded at the end, the last call first: `thunder_plugin_subclasses.derivatives`.

The inner tensors that the program sees do not require grad, as in eager. For each that carries a gradient the trace has
a second value, which requires grad.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import torch

from thunder_core.checks.source import ItemSource, Source
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves, tensors_in
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    disable_current_modes,
)
from thunder_core.symbols.registry import registry
from thunder_core.tracing.frames import user_location
from thunder_frontend.observe.contents import own_attributes
from thunder_frontend.record.autograd_functions import Applied
from thunder_frontend.record.open_trace import Region
from thunder_frontend.record.traced_tensor import Variable, is_traced, metadata_key, variable_of
from thunder_plugin_subclasses.gradient_boundary import InnerTensorsSource, inner_tensors
from thunder_plugin_subclasses.parts import (
    carrying,
    flattened,
    gradient_parts,
    is_wrapper,
    made_like,
    not_recorded,
)
from thunder_plugin_subclasses.recording import Recording
from thunder_plugin_subclasses.wrapper_op import WrapperOp

_LEAF = "a leaf Variable that requires grad"
"""Part of autograd's message about writes: results of calls are leaves while a program is recorded."""


@dataclass(eq=False)
class DifferentiableCall:
    """A recorded call with its autograd graph; its derivative is recorded later.

    Attributes:
        name: the name of the function.
        kind: the class of a wrapper among its arguments or results.
        location: the user's line.
        wanted: the arguments that require grad.
        names: for each of these, the names of the values of `carrying` at the time of the call.
        outputs: the results that require grad.
        op: the op of the trace.
    """

    name: str
    kind: type
    location: SourceLocation | None
    wanted: list[torch.Tensor]
    names: list[tuple[str, ...]]
    outputs: list[torch.Tensor]
    op: WrapperOp

    def refuse(self, problem: str, kind: type | None = None) -> UnsupportedError | RunEagerly:
        """What to raise about this call, at its line."""
        return not_recorded(kind or self.kind, problem, location=self.location)


def call_with_gradients(recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call with arguments that require grad.

    Raises:
        UnsupportedError: the call writes, or returns one of its arguments, or the same tensor twice.
    """
    # the recording mode is inactive while it handles a call, but active while an autograd.Function is applied
    outside_mode: Any = DisableTorchFunction if isinstance(func, Applied) else DisableTorchFunctionSubclass
    name = getattr(func, "__name__", str(func))
    if len(recording.recorder.trace.outer_ops) > recording.open_checkpoints:
        kinds = [type(each) for each in iterate_leaves((args, kwargs)) if is_wrapper(each)]
        kind = kinds[0] if kinds else torch.Tensor
        raise not_recorded(kind, f"{name} is called in a branch of torch.cond")
    forward = Region(recording.recorder.trace, recording.recorder.tensors)
    with outside_mode():
        tensors = tensors_in((args, kwargs))
        wanted = list({id(tensor): tensor for tensor in tensors if requires_grad(recording, tensor)}.values())
        with recording.recorder.suspension:  # adding inputs calls functions of Thunder itself
            given, names = _given(recording, wanted, name)
    with forward.recording():
        try:
            result = func(*args, **kwargs)
        except RuntimeError as error:
            if _LEAF in str(error) and any(not _existed(recording, tensor) for tensor in wanted):
                kind = next(type(tensor) for tensor in tensors if is_wrapper(tensor))
                raise not_recorded(kind, f"{name} writes while autograd records") from error
            raise
    with outside_mode():
        results = tensors_in(result)
        computed = [leaf for leaf in results if not any(leaf is tensor for tensor in tensors)]
        kind = next((type(tensor) for tensor in (*tensors, *results) if is_wrapper(tensor)), torch.Tensor)
        if forward.effects().mutates:
            if len(computed) < len(results):
                raise not_recorded(kind, f"{name} writes while autograd records")
            forward.leave_writes()
            with recording.recorder.suspension:
                given, names = _given(recording, wanted, name)
        outputs = [leaf for leaf in computed if leaf.requires_grad]
        if not outputs:
            recording.recorder.trace.ops += forward.ops
            return result
        op = WrapperOp(recording.recorder, forward, given)
        _write(recording, DifferentiableCall(name, kind, user_location(), wanted, names, outputs, op))
        leaves = {id(output): _leaf(recording, output) for output in outputs}
        return map_leaves(lambda leaf: leaves.get(id(leaf), leaf), result)


def _existed(recording: Recording, tensor: torch.Tensor) -> bool:
    """Whether a tensor existed before the program."""
    return id(tensor) in recording.existing or not (is_traced(tensor) or is_wrapper(tensor))


def _given(
    recording: Recording, wanted: Sequence[torch.Tensor], name: str
) -> tuple[dict[str, Proxy], list[tuple[str, ...]]]:
    """Values with gradients, by the names of the values of `carrying` in ``wanted``; these names by tensor."""
    given: dict[str, Proxy] = {}
    names: list[tuple[str, ...]] = []
    for tensor in wanted:
        known = _carriers(recording, tensor)
        if given.keys() & {data.name for data, _ in known}:
            raise not_recorded(type(tensor), f"{name} is called with tensors that share an inner tensor")
        given |= {data.name: carrier for data, carrier in known}
        names.append(tuple([data.name for data, _ in known]))
    return given, names


def _write(recording: Recording, call: DifferentiableCall) -> None:
    """Write the op of a call, and store the call for its derivative."""
    forward = call.op.forward
    effects = forward.effects()
    if effects.mutates or (effects.visible and not forward.only_communicates()):
        raise call.refuse(f"{call.name} writes, or has other effects, while autograd records")
    with forward.recording():
        for output in call.outputs:
            _renew(recording, output, forward.defined())
    values = [recording.recorder.tensors.variable(part) for output in call.outputs for part in carrying(output)]
    if len(set(values)) < len(values) or any(each.proxy.name not in forward.defined() for each in values):
        raise call.refuse(f"{call.name} returns one of its arguments, or the same tensor twice")
    held = [part for output in call.outputs if not is_traced(output) for part in carrying(output)]
    inner = set(map(recording.recorder.tensors.variable, held))
    live = dict.fromkeys(map(recording.recorder.tensors.variable, forward.live_tensors()))
    returned = [*values, *[each for each in live if each not in values and each.proxy.name in forward.defined()]]
    outputs = call.op.write([variable.proxy for variable in returned], len(values))
    for variable, proxy in zip(returned, outputs, strict=True):
        _rename(recording, call.op, variable, proxy, is_inner=variable in inner)
    recording.calls.append(call)


def _rename(recording: Recording, op: WrapperOp, variable: Variable, output: TensorProxy, *, is_inner: bool) -> None:
    """Rename a value of a call to its name outside of the op; the program sees inner tensors without gradients."""
    if is_inner:
        recording.carriers[variable] = output
        carrier, output = (
            output,
            replace(output, name=recording.recorder.trace.names.intermediate(), requires_grad=False),
        )
        op.inside[output.name] = op.inside[carrier.name]
        recording.recorder.trace.write(registry.symbol_of(torch.detach), (carrier,), {}, output)
    elif output.requires_grad:
        variable.fake = variable.base = None
    variable.proxy = output
    variable.key = metadata_key(output, variable.bits)


def _renew(recording: Recording, wrapper: torch.Tensor, defined: set[str]) -> None:
    """Replace inner tensors of a wrapper that are also arguments of the call by views of them."""
    if not is_wrapper(wrapper):
        return
    parts = flattened(wrapper)[0]
    for name in gradient_parts(parts):
        part = parts[name]
        if is_wrapper(part):
            _renew(recording, part, defined)
            continue
        with recording.recorder.suspension:
            is_given = recording.recorder.tensors.proxy_of(part).name not in defined
        if is_given:
            with torch.no_grad(), DisableTorchFunction():
                setattr(wrapper, name, recording.recorder.call(torch.ops.aten.alias.default, (part,), {}))


def requires_grad(recording: Recording, tensor: torch.Tensor) -> bool:
    """Whether a tensor requires grad in the program; if so, ``requires_grad`` is set on a traced tensor as well."""
    if not is_traced(tensor):
        return tensor.requires_grad
    required = recording.recorder.tensors.requires_grad(recording.recorder.tensors.variable(tensor))
    if required and not tensor.requires_grad:
        with DisableTorchFunction():
            tensor.requires_grad_()
    return required


def _leaf(recording: Recording, tensor: torch.Tensor) -> torch.Tensor:
    """A result as a leaf of autograd, at which the derivative of later calls ends."""
    variable = variable_of(tensor)
    if variable is not None:
        leaf = recording.recorder.tensors.traced(variable, type(tensor))
    else:
        with torch.no_grad():
            leaf = made_like(tensor, *flattened(tensor))
    vars(leaf).update(own_attributes(tensor))
    with DisableTorchFunction():
        return leaf.requires_grad_()


def _carriers(recording: Recording, tensor: torch.Tensor) -> list[tuple[TensorProxy, TensorProxy]]:
    """The values of `carrying` in the program, each with the value that carries its gradient."""
    variables = [recording.recorder.tensors.variable(part) for part in carrying(tensor)]
    if not is_wrapper(tensor):
        return [(variable.proxy, variable.proxy) for variable in variables]
    carriers = recording.carriers
    if any(variable not in carriers for variable in variables):
        source = recording.observer.source_of(tensor)
        if source is None:
            raise not_recorded(type(tensor), "the program creates a tensor that requires grad")
        with disable_current_modes():
            lifted = list(_lift(recording, tensor, source, iter(variables)))
        carriers |= dict(zip(variables, lifted, strict=True))
    return [(variable.proxy, carriers[variable]) for variable in variables]


def _lift(
    recording: Recording, wrapper: torch.Tensor, source: Source, variables: Iterator[Variable]
) -> Iterator[TensorProxy]:
    """Make the inner tensors of a wrapper inputs with gradients; ``variables`` are the inputs without gradients."""
    of_wrapper = tuple(islice(variables, sum(1 for _ in carrying(wrapper))))
    inner = InnerTensorsSource(source, recording.gradient_layout(of_wrapper))
    rest = iter(of_wrapper)
    for index, value in enumerate(inner_tensors(wrapper, inner.layout)):
        path = ItemSource(inner, index)
        if is_wrapper(value):
            yield from _lift(recording, value, path, rest)
        else:
            next(rest)
            yield recording.recorder.inputs.add(value, path).proxy

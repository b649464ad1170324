"""Writes the bound symbols of a trace under construction, from calls and their inferred results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.location import SourceLocation, at
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, as_found, known_at_most, on_fakes, with_size
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols.functions import REBASED, set_grad
from thunder_core.symbols.opaque import ASSIGNS, SETS_REQUIRES_GRAD, is_of_pytorch
from thunder_core.tracing.fake_tensors import lazy_bits, make_alias, storage_address
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.outcome import Outcome, Result, Slot
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.inputs import Inputs
from thunder_frontend.record.open_trace import OpenTrace
from thunder_frontend.record.tensors import Tensors
from thunder_frontend.record.traced_size import traced_size
from thunder_frontend.record.traced_tensor import Variable, is_traced

if TYPE_CHECKING:
    from thunder_frontend.record.recorder import Recorder


class OpWriter:
    """Writes the bound symbols of calls, and creates the traced tensors for their results."""

    def __init__(self, trace: OpenTrace, inputs: Inputs, tensors: Tensors) -> None:
        self._trace = trace
        self._inputs = inputs
        self._tensors = tensors

    def record(
        self, symbol: Symbol, call: CallArguments, outcome: Outcome, fakes: Sequence[Any], context: Context
    ) -> Any:
        """Write the bound symbol of a call, and return its result, with traced tensors for those that it computes.

        Args:
            fakes: the fakes of the results; empty if they are unknown, since an equal call was inferred before.
        """
        if context.autocast:
            self._trace.ops += self._trace.autocast_regions.before_op(user_location())
        changes_autograd = Tag.CHANGES_AUTOGRAD in symbol.tags
        if symbol.target in SETS_REQUIRES_GRAD and not self._with_other_flag(call):
            changes_autograd = False  # the tensor had the value before
        if not changes_autograd:
            self._check_numbers(symbol, outcome)
        elif Tag.DETACH in symbol.tags:
            self._check_views(symbol, call.variables[0])
        pure = not (outcome.written or outcome.irremovable or changes_autograd)
        if pure and outcome.identical and outcome.results:
            return self._arguments(symbol, call, outcome, fakes)
        location = user_location()
        if outcome.reads_sparse:
            raise RunEagerly(
                f"{symbol.name} returns a part of a sparse tensor{at(location, ' at ')}, whose size recording does not "
                "know, and through which the program may write"
            )
        self._trace.storages.in_sparse.update([call.proxies[index].storage for index in outcome.in_sparse])
        constant = call.foldable and not outcome.irremovable and all(map(self._tensors.is_constant, call.variables))
        proxies, objects = self._results(symbol, call, outcome, fakes, constant, location)
        written = {call.proxies[index].storage for index in outcome.written}
        self._trace.storages.written |= written
        if not constant:
            self._trace.storages.constant -= written
        if outcome.written:
            self._check_writes(symbol, call, outcome, location)
        effects = outcome.effects(symbol, call.proxies)
        output = _filled(outcome.structure, proxies) if outcome.results else None
        stored = self._trace.relative_context(context)
        self._trace.ops.append(BoundSymbol(symbol, call.args, call.kwargs, output, effects, stored, location))
        if outcome.written or changes_autograd:
            self.follow_history({old.storage for old in self._with_other_flag(call)})
        return _filled(outcome.structure, objects, traced_size)

    def _results(
        self,
        symbol: Symbol,
        call: CallArguments,
        outcome: Outcome,
        fakes: Sequence[Any],
        constant: bool,
        location: SourceLocation | None,
    ) -> tuple[list[TensorProxy], list[Any]]:
        """The proxies and the tensor objects of the results: new proxies for arguments that the call wrote."""
        proxies: list[TensorProxy] = []
        objects: list[Any] = []
        variables: list[Variable] = []
        for result, fake in _with_fakes(outcome, fakes):
            if result.same_as >= 0:
                objects.append(call.objects[result.same_as])
                variable = call.variables[result.same_as]
                self._check_storage(symbol, variable, fake)
                self._rename(variable, result, fake)
                if symbol.target is set_grad or Tag.LOCAL in symbol.tags:
                    self._tensors.other_gradients.add(variable)
            else:
                variable = self._new_variable(result, call, variables, fake, constant, location)
                objects.append(self._tensors.traced(variable))
            variables.append(variable)
            proxies.append(variable.proxy)
        return proxies, objects

    def _with_other_flag(self, call: CallArguments) -> list[TensorProxy]:
        """The arguments, as they were before the call, whose ``requires_grad`` it changed."""
        pairs = zip(call.variables, call.proxies, strict=True)
        return [old for now, old in pairs if self._tensors.requires_grad(now) != old.requires_grad]

    def _arguments(self, symbol: Symbol, call: CallArguments, outcome: Outcome, fakes: Sequence[Any]) -> Any:
        """The result of a call without effects that returns its arguments, as ``contiguous()`` may."""
        if symbol.target in ASSIGNS:
            raise UnsupportedError(
                f"the program assigns to the property `{call.args[1]}` of a tensor, or deletes it",
                location=user_location(),
                advice=("do this outside of the compiled function",),
            )
        for result, fake in _with_fakes(outcome, fakes):
            self._check_storage(symbol, call.variables[result.same_as], fake)
        return _filled(outcome.structure, [call.objects[result.same_as] for result in outcome.results])

    def follow_history(self, storages: set[int]) -> None:
        """Rename tensors of these storages that require grad since a write to another tensor with the same history."""
        if not storages:
            return
        tensors = self._tensors
        shown = [variable for variable in tensors.all_variables() if variable.proxy.storage in storages]
        for variable, requires_grad in [(variable, tensors.requires_grad(variable)) for variable in shown]:
            old = variable.proxy
            if requires_grad != old.requires_grad:
                self._trace.write(REBASED, (old,), {}, tensors.rename(variable, requires_grad=requires_grad))

    def _check_views(self, symbol: Symbol, detached: Variable) -> None:
        """Refuse to detach a tensor in place if it has views that require grad: these keep their history."""
        for variable in self._tensors.all_variables():
            if variable.base is detached and self._tensors.requires_grad(variable):
                raise UnsupportedError(
                    f"{symbol.name} of a tensor whose views require grad, and keep their autograd history",
                    location=user_location(),
                    advice=("write y = x.detach(), and use y from there on", "take the views after detach_()"),
                )

    def _check_numbers(self, symbol: Symbol, outcome: Outcome) -> None:
        """Refuse a call that returns a value to Python which only a run of the program could provide."""
        if outcome.results and not isinstance(symbol.target, OpOverload | OpOverloadPacket):
            return
        if outcome.results and is_of_pytorch(symbol):  # numbers among the tensors follow from the arguments' shapes
            return
        values = [leaf for leaf in iterate_leaves(outcome.structure) if leaf is not None and type(leaf) is not Slot]
        if values:
            raise UnsupportedError(
                f"{symbol.name} returns a Python {type(values[0]).__name__}, whose value only a run of the program has",
                location=user_location(),
                advice=(
                    "have the operator return tensors, whose values a compiled program computes in each call",
                    "call it outside of the compiled function and pass the result as an argument",
                ),
            )

    def _check_writes(
        self, symbol: Symbol, call: CallArguments, outcome: Outcome, location: SourceLocation | None
    ) -> None:
        written = [call.proxies[index] for index in outcome.written]
        if any(proxy.layout is not torch.strided for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to a sparse tensor",
                location=location,
                advice=("use the out-of-place function and rebind the variable",),
            )
        if any(self._inputs.is_of_unknown_origin(proxy.storage) for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to a storage of unknown origin: it comes from a call that is not recorded, as "
                "torch.from_numpy, or no path leads to it",
                location=location,
                advice=("clone() the tensor before it is written", "pass it as an argument"),
            )
        if not self._trace.storages.in_sparse.isdisjoint(proxy.storage for proxy in written):
            raise RunEagerly(f"{symbol.name} writes to a part of a sparse tensor{at(location, ' at ')}")
        if not self._trace.storages.entangled.isdisjoint(proxy.storage for proxy in written):
            raise UnsupportedError(
                f"{symbol.name} writes to a storage of which another tensor is a view at a data-dependent position",
                location=location,
                advice=("clone() the result of the call whose position is a tensor (torch.narrow, say)",),
            )

    def _new_variable(
        self,
        result: Result,
        call: CallArguments,
        variables: list[Variable],
        fake: Any,
        constant: bool,
        location: SourceLocation | None,
    ) -> Variable:
        base = None
        if result.shares >= 0:
            base = call.variables[result.shares]
        elif result.shares_result >= 0:
            base = variables[result.shares_result]
        storage = base.proxy.storage if base is not None else self._trace.storages.new(fake)
        proxy = TensorProxy(
            self._trace.names.intermediate(),
            result.shape,
            result.stride,
            result.dtype,
            result.device,
            result.requires_grad,
            storage,
            result.offset,
            result.layout,
        )
        if base is None and constant:
            self._trace.storages.constant.add(storage)
        detached = result.detached and base is not None
        return Variable(
            proxy,
            fake=fake,
            base=base,
            constant=constant,
            detached=detached,
            bits=lazy_bits(fake),
            location=location,
        )

    def _moved(self, variable: Variable, fake: torch.Tensor | None) -> bool:
        """Whether a call gave its argument another storage (``set_``, assignment to ``data``)."""
        if fake is None or fake.layout is not torch.strided:
            return False
        return self._trace.storages.number(storage_address(fake)) != variable.proxy.storage

    def _check_storage(self, symbol: Symbol, variable: Variable, fake: torch.Tensor | None) -> None:
        """Refuse a call that gave its argument another storage, unless the symbol is known to do so."""
        if Tag.AS_RECORDED not in symbol.tags and self._moved(variable, fake):
            raise UnsupportedError(
                f"{symbol.name} gives {variable.proxy.name} another storage",
                location=user_location(),
                advice=("rebind the variable to the other tensor instead", "assign to its attribute `data`"),
            )

    def _rename(self, variable: Variable, result: Result, fake: torch.Tensor | None) -> None:
        """Give a new proxy to a tensor object that a call wrote, or whose metadata or storage it changed."""
        storages = self._trace.storages
        storage = variable.proxy.storage
        if fake is not None and self._moved(variable, fake):
            known = storages.number(storage_address(fake))
            storage = storages.new(fake) if known is None else known
        self._tensors.rename(
            variable,
            shape=result.shape,
            stride=result.stride,
            offset=result.offset,
            dtype=result.dtype,
            storage=storage,
            requires_grad=result.requires_grad,
        )


def _filled(structure: Any, values: Sequence[Any], convert: Callable[[Any], Any] | None = None) -> Any:
    """The structure of a result with these values in its slots; ``convert`` is applied to its other leaves."""
    if type(structure) is Slot:  # of most calls
        return values[structure.index]
    return map_leaves(
        lambda leaf: values[leaf.index] if type(leaf) is Slot else leaf if convert is None else convert(leaf),
        structure,
    )


def _with_fakes(outcome: Outcome, fakes: Sequence[Any]) -> Iterator[tuple[Result, Any]]:
    """The results of a call, each with its fake, or with None if it is unknown."""
    return zip(outcome.results, fakes or itertools.repeat(None), strict=False)


def is_reshaped(result: Result, call: CallArguments) -> bool:
    """Whether a result, which is an argument of the call, has another shape, strides or offset than before."""
    now, before = (*result.shape, *result.stride, result.offset), call.proxies[result.same_as].sizes
    # inference of the call may have recorded that two symbols are equal
    return now != before and _as_found(now) != _as_found(before)


def _as_found(sizes: tuple[Size, ...]) -> list[Size]:
    return [with_size(size, as_found) for size in sizes]


def reshape(
    recorder: Recorder,
    symbol: Symbol,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: CallArguments,
    outcome: Outcome,
) -> Any:
    """Record ``x.t_()``, or ``out=`` of another size: the object becomes another view, or another tensor.

    Returns NotImplemented for other calls: if they change the storage itself, PyTorch runs the ops as recorded.
    """
    tensors = recorder.tensors
    index = outcome.results[0].same_as
    variable, tensor = call.variables[index], call.objects[index]
    if kwargs.get("out") is tensor and is_traced(tensor) and not variable.proxy.numel:
        value = recorder.call_symbol(symbol, args, {name: item for name, item in kwargs.items() if name != "out"})
    elif symbol.functional is not None and len(outcome.results) == 1:
        assert variable.fake is not None
        changed = variable.fake
        with tensors.fake_mode.observing(), torch.no_grad():
            variable.fake = make_alias(changed, variable.proxy)  # as it was before the call
            # after a write, autograd takes other views of a base again by their functions, which need its old shape
            changed.as_strided_(*on_fakes(variable.proxy.geometry))
        value = recorder.call_symbol(symbol.functional, args, kwargs)
        if tensors.proxy_of(value).storage != variable.proxy.storage:
            raise _resized(symbol, variable)
        if variable.proxy.requires_grad and _loses_elements(tensors, value, variable):
            raise _resized(symbol, variable)
        if not is_traced(tensor):
            call.inputs.reshaped[id(tensor)] = variable
    elif isinstance(symbol.target, OpOverload):
        raise _resized(symbol, variable)
    else:
        return NotImplemented
    result = tensors.variable(value)
    with tensors.fake_mode.observing():
        fake = tensors.fake(result)  # created now, as it may be derived from the fake of ``variable``
    variable.proxy, variable.bits, variable.key, variable.fake = result.proxy, result.bits, result.key, fake
    return tensor


def _loses_elements(tensors: Tensors, value: Any, variable: Variable) -> bool:
    """Whether a tensor lacks elements that it had, and that another one has: gradients of these are lost in eager."""
    if known_at_most(variable.proxy.numel, tensors.proxy_of(value).numel):
        return False
    others = [other for other in tensors.all_variables() if other.proxy.storage == variable.proxy.storage]
    return any(other is not variable and other is not tensors.variable(value) for other in others)


def _resized(symbol: Symbol, variable: Variable) -> UnsupportedError:
    return UnsupportedError(
        f"{symbol.name} changes the size of {variable.proxy.name} in place",
        location=user_location(),
        advice=("use the out-of-place function and rebind the variable",),
    )

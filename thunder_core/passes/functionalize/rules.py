"""Rules for the functional form of an in-place op."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.context import Context
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import TensorProxy, differentiable
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.ir.trace import Trace, with_bodies
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes import operations
from thunder_core.passes.autocast_rewrites import is_same_without_autocast
from thunder_core.passes.functionalize.blocks import View
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols.registry import registry
from thunder_core.tracing.outcome import Slot

_OPERATORS = (OpOverload, OpOverloadPacket)


@dataclass(frozen=True, slots=True)
class Twin:
    """The functional form of an in-place op.

    Attributes:
        symbol: the functional symbol.
        like: the metadata of its result.
        context: the modes of its call; None for those of the trace.
    """

    symbol: Symbol
    like: TensorProxy
    context: Context | None


def find_twin(call: BoundSymbol, target: TensorProxy, metadata: Metadata, emitter: Emitter) -> Twin | None:
    """The functional symbol that computes the value which the in-place ``call`` writes to its first argument.

    None if the two may differ: for random calls (the twin may draw other numbers), for calls that autocast changes, for
    functional variants of ATen operators with gradients (most have no derivative), and if the twin returns another
    shape or shares storage with an argument. Autocast casts arguments of functions, but not of most in-place methods
    (``torch.exp(x)``, and not ``x.exp_()``): the twin is called without it.
    """
    symbol = call.symbol.functional
    if symbol is None or call.effects.irremovable:
        return None
    if not call.args or call.args[0] != target:
        return None
    if isinstance(symbol.target, _OPERATORS) and requires_grad(call, emitter):
        return None
    context, modes = call.context, emitter.modes
    if modes.autocast:
        if import_path(call.symbol.target) is None or not is_same_without_autocast(_on_copy(call, target), modes):
            return None
        context = modes = replace(modes, autocast=())
    outcome = metadata.outcome(symbol, call.args, call.kwargs, modes)
    if outcome is None or outcome.written or outcome.random or outcome.structure != Slot(0):
        return None
    result = outcome.results[0]
    if result.shares >= 0 or result.shape != target.shape:
        return None
    return Twin(symbol, replace(target, stride=result.stride, dtype=result.dtype), context)


def _on_copy(call: BoundSymbol, target: TensorProxy) -> BoundSymbol:
    """The in-place call on a copy of its first argument, to infer what it does."""
    arguments = (call.symbol.target, (0,), call.args, call.kwargs)
    symbol, args, kwargs = registry.resolve(operations.functional_call, arguments, {})
    return BoundSymbol(symbol, args, kwargs, (target, target), call.effects.without_writes())


def call_twin(call: BoundSymbol, target: TensorProxy, twin: Twin, name: str | None, emitter: Emitter) -> TensorProxy:
    """Emit a call of the twin; its result has the dtype and strides of ``target``, and ``name`` if that is given."""
    value = emitter.fresh(twin.like, requires_grad=requires_grad(call, emitter))
    emitter.ops.append(
        BoundSymbol(twin.symbol, call.args, call.kwargs, value, context=twin.context, location=call.location)
    )
    if value.dtype != target.dtype:
        cast = replace(value, dtype=target.dtype)
        cast = emitter.fresh(cast, requires_grad=value.requires_grad)
        emitter.call(torch.Tensor.to, (value, target.dtype), cast)
        value = cast
    if value.stride != target.stride:
        strided = emitter.fresh(replace(value, stride=target.stride), requires_grad=value.requires_grad)
        emitter.call(operations.restride, (value, tuple(target.stride)), strided)
        value = strided
    if name is None:
        return value
    value = replace(value, name=name)
    emitter.ops[-1] = replace(emitter.ops[-1], output=value)
    return value


def call_on_copies(
    call: BoundSymbol, targets: list[TensorProxy], output: Any, metadata: Metadata, emitter: Emitter
) -> list[TensorProxy]:
    """Emit ``call`` on copies of the arguments that it writes; this rule applies to every op.

    Args:
        call: the in-place op on functional values.
        targets: the arguments that it writes.
        output: proxies for its result.

    Returns:
        The copies, which have the values after the write.
    """
    positions = _positions(call, targets)
    operation, _, _ = registry.resolve(operations.functional_call, (), {})
    symbol, function = call.symbol, call.symbol.target
    arguments: tuple[Any, ...] = (function, positions, call.args, call.kwargs)
    if import_path(function) is None:  # it is not a literal: make it part of the op's symbol
        operation, arguments = _local(symbol, positions), (call.args, call.kwargs)
    if call.effects.uncounted:  # autograd, which counts what it records, knows nothing of the write: running statistics
        recorded = [target.requires_grad for target in targets]
    else:
        gradient = requires_grad(call, emitter)
        recorded = [gradient] * len(targets)
        outcome = metadata.outcome(operation, arguments, {}, emitter.modes) if gradient else None
        if outcome is not None:  # autograd does not record every write of an op
            recorded = [result.requires_grad for result in outcome.results[-len(targets) :]]
    copies = [emitter.fresh(target, requires_grad=flag) for target, flag in zip(targets, recorded, strict=True)]
    _emit(call, operation, arguments, (output, *copies), emitter)
    return copies


def call_recomputed(
    call: BoundSymbol, targets: list[TensorProxy], views: list[View], output: Any, emitter: Emitter
) -> list[TensorProxy]:
    """Emit ``call``, an op that backward recomputes, on copies of the arguments that it writes.

    Args:
        call: the in-place op on functional values.
        targets: the arguments that it writes.
        views: the views (tensor objects of the program) of these arguments.
        output: proxies for its result.

    Returns:
        The copies, which have the values after the write.
    """
    locations = tuple([_location(view) for view in views])
    operation, arguments, _ = registry.resolve(
        operations.recomputed_call,
        (call.symbol.target, _positions(call, targets), locations, call.args, call.kwargs),
        {},
    )
    body, _, *operands = call.args
    inside = {operand.name: proxy.storage for operand, proxy in zip(operands, body.inputs, strict=True)}
    recorded = _recorded(body) if requires_grad(call, emitter) else frozenset()
    copies = [
        emitter.fresh(target, requires_grad=target.requires_grad or inside[target.name] in recorded)
        for target in targets
    ]
    _emit(call, operation, arguments, (output, *copies), emitter)
    return copies


def _location(view: View) -> tuple[Any, ...] | None:
    """The geometry of a view in an input, as `operations.recomputed_call` takes it; None if it is in no input."""
    block, proxy = view.block, view.proxy
    if not block.inputs or proxy.dtype != block.root.dtype:
        return None
    return block.root, tuple(proxy.shape), tuple(proxy.stride), view.relative_offset


def _recorded(body: Trace) -> frozenset[int]:
    """The storages of a body's values that require grad.

    Autograd does not record writes to others (running statistics, say).
    """
    return frozenset(
        proxy.storage for op in with_bodies(body.symbols) for proxy in tensor_outputs_of(op) if proxy.requires_grad
    )


def requires_grad(call: BoundSymbol, emitter: Emitter) -> bool:
    """Whether autograd records results of the call."""
    return emitter.records_gradients and any(map(differentiable, call.inputs()))


def _positions(call: BoundSymbol, targets: list[TensorProxy]) -> tuple[int, ...]:
    """The positions of ``targets`` among the argument leaves of a call."""
    names = [getattr(leaf, "name", None) for leaf in iterate_leaves((call.args, call.kwargs))]
    return tuple([names.index(target.name) for target in targets])


def _emit(call: BoundSymbol, operation: Symbol, args: tuple[Any, ...], output: Any, emitter: Emitter) -> None:
    """Emit ``operation`` in place of ``call``, with its modes and location, and its effects besides the writes."""
    effects = call.effects.without_writes()
    emitter.ops.append(BoundSymbol(operation, args, {}, output, effects, call.context, call.location))


def _local(symbol: Symbol, positions: tuple[int, ...]) -> Symbol:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return operations.functional_call(symbol.target, positions, args, kwargs)

    return Symbol(f"functional_{symbol.name.replace('.', '_')}", call, CallStyle.FUNCTION, symbol.tags | {Tag.LOCAL})

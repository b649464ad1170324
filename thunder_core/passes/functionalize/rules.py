"""Rules for the functional form of an in-place op."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import CallStyle, Symbol, Tag
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.metadata import Metadata
from thunder_core.pytorch_internals import OpOverload, OpOverloadPacket
from thunder_core.symbols.registry import registry
from thunder_core.tracing.outcome import Slot

_OPERATORS = (OpOverload, OpOverloadPacket)


@dataclass(frozen=True, slots=True)
class Twin:
    """The functional symbol of an in-place op, and the metadata of its result."""

    symbol: Symbol
    like: TensorProxy


def find_twin(call: BoundSymbol, target: TensorProxy, metadata: Metadata, emitter: Emitter) -> Twin | None:
    """The functional symbol that computes the value which the in-place ``call`` writes to its first argument.

    None if the two may differ: for random calls (the twin may draw other numbers), under autocast (which casts their
    arguments differently), for functional variants of ATen operators with gradients (most have no derivative), and if
    the twin returns another shape or shares storage with an argument.
    """
    symbol = call.symbol.functional
    if symbol is None or call.effects.irremovable or emitter.modes.autocast:
        return None
    if not call.args or call.args[0] != target:
        return None
    if isinstance(symbol.target, _OPERATORS) and requires_grad(call, emitter):
        return None
    outcome = metadata.outcome(symbol, call.args, call.kwargs, emitter.modes)
    if outcome is None or outcome.written or outcome.random or outcome.structure != Slot(0):
        return None
    result = outcome.results[0]
    if result.shares >= 0 or result.shape != target.shape:
        return None
    return Twin(symbol, replace(target, stride=result.stride, dtype=result.dtype))


def call_twin(call: BoundSymbol, target: TensorProxy, twin: Twin, name: str | None, emitter: Emitter) -> TensorProxy:
    """Emit a call of the twin; its result has the dtype and strides of ``target``, and ``name`` if that is given."""
    value = emitter.fresh(twin.like, requires_grad=requires_grad(call, emitter))
    emitter.ops.append(
        BoundSymbol(twin.symbol, call.args, call.kwargs, value, context=call.context, location=call.location)
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
    leaves = list(iterate_leaves((call.args, call.kwargs)))
    positions = tuple(position_of(leaves, target) for target in targets)
    operation, _, _ = registry.resolve(operations.functional_call, (), {})
    symbol, function = call.symbol, call.symbol.target
    arguments: tuple[Any, ...] = (function, positions, call.args, call.kwargs)
    if import_path(function) is None:  # it is no literal: make it part of the op's symbol
        operation, arguments = _local(symbol, positions), (call.args, call.kwargs)
    gradient = requires_grad(call, emitter)
    recorded = [gradient] * len(targets)
    outcome = metadata.outcome(operation, arguments, {}, emitter.modes) if gradient else None
    if outcome is not None:  # autograd does not record every write of an op (running statistics, say)
        recorded = [result.requires_grad for result in outcome.results[-len(targets) :]]
    copies = [emitter.fresh(target, requires_grad=flag) for target, flag in zip(targets, recorded, strict=True)]
    effects = replace(call.effects, mutates=())
    emitter.ops.append(BoundSymbol(operation, arguments, {}, (output, *copies), effects, call.context, call.location))
    return copies


def requires_grad(call: BoundSymbol, emitter: Emitter) -> bool:
    """Whether autograd records results of the call."""
    return emitter.records_gradients and any(
        isinstance(proxy, TensorProxy) and proxy.requires_grad for proxy in call.inputs()
    )


def position_of(leaves: list[Any], target: TensorProxy) -> int:
    """The position of ``target`` among the argument leaves of a call."""
    return next(
        index for index, leaf in enumerate(leaves) if isinstance(leaf, TensorProxy) and leaf.name == target.name
    )


def _local(symbol: Symbol, positions: tuple[int, ...]) -> Symbol:
    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return operations.functional_call(symbol.target, positions, args, kwargs)

    return Symbol(f"functional_{symbol.name.replace('.', '_')}", call, CallStyle.FUNCTION, symbol.tags | {Tag.LOCAL})

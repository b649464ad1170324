"""Calls whose result needs values: computed where nothing depends on an input, tried on samples, deferred, refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from thunder_core.acquire import concrete, data_dependence, ranges
from thunder_core.acquire.arguments import Call, convert
from thunder_core.acquire.probe import probe
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import current_context
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.proxy import NumberProxy, TensorProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import FakeTensor, set_cudnn_enabled
from thunder_core.symbols.checks import CHECK_METADATA, CHECK_TRUE
from thunder_core.symbols.registry import registry
from thunder_core.tracing.outcome import Outcome, infer
from thunder_core.tracing.user_frames import user_location

if TYPE_CHECKING:
    from thunder_core.acquire.recorder import Recorder


def read_value(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that reads values into Python: answered for constants, an error otherwise."""
    with recorder.suspended():
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        call = Call(recorder)
        convert(args, call), convert(kwargs, call)
        return find_another_way(recorder, symbol, args, kwargs, call, data_dependence.ValueNeeded(symbol.name))


def defer(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a comparison whose result is a Python bool that only the running program knows."""
    with recorder.suspended():
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        call = Call(recorder)
        recorded = convert(args, call), convert(kwargs, call)
        if call.foldable and all(recorder.is_constant(variable) for variable in call.variables):
            return concrete.evaluate(recorder, symbol, args, kwargs)
        proxy = NumberProxy(recorder.names.intermediate(), bool)
        shown = recorder.own_context(current_context())
        recorder.lines.append(BoundSymbol(symbol, *recorded, proxy, PURE, shown, user_location()))
        return TracedNumber(proxy, symbol, tuple(call.variables))


def is_unknown(recorder: Recorder, value: Any) -> bool:
    """Whether a value is a tensor, or a number from one, that depends on an input or on random numbers."""
    if isinstance(value, TracedNumber):
        return True
    return type(value) is torch.Tensor and not recorder.is_constant(recorder.variable(value))


def record_assertion(recorder: Recorder, condition: torch.Tensor | TracedNumber, message: Any) -> None:
    """Record a check of a condition that only the running program knows."""
    with recorder.suspended():
        call = Call(recorder)
        checked = condition.proxy if isinstance(condition, TracedNumber) else convert(condition, call)
        shown = recorder.own_context(current_context())
        line = BoundSymbol(CHECK_TRUE, (checked, convert(message, call)), {}, None, Effects(external=True), shown)
        recorder.lines.append(replace(line, location=user_location()))


def find_another_way(
    recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, error: Exception
) -> Any:
    """A value is needed: compute it when nothing depends on an input, else look for another way or explain."""
    read = isinstance(error, data_dependence.ValueNeeded)
    if not read:
        numbers = map_leaves(lambda leaf: _as_number(recorder, leaf), (args, kwargs))
        pairs = zip(iterate_leaves(numbers), iterate_leaves((args, kwargs)), strict=True)
        if any(new is not old for new, old in pairs):
            try:
                return recorder.call_symbol(symbol, *numbers)
            except TypeError:  # it takes a tensor there
                error = error.with_traceback(None)
    if call.foldable and all(recorder.is_constant(variable) for variable in call.variables):
        value = concrete.evaluate(recorder, symbol, args, kwargs)
        return map_leaves(
            lambda leaf: (
                recorder.call(torch.clone, (recorder.inputs.constant(leaf),), {})
                if isinstance(leaf, torch.Tensor)
                else leaf
            ),
            value,
        )
    if read:
        known = ranges.truth(recorder.lines, call.proxies[0]) if symbol.target in ranges.READS else None
        if known is not None:
            return known
        drawn = concrete.is_drawn(recorder, call.variables)
        raise data_dependence.error(symbol, call.variables, user_location(), error, drawn=drawn) from error
    if torch.backends.cudnn.enabled and any(proxy.device.type == "cuda" for proxy in call.proxies):
        return _without_cudnn(recorder, symbol, args, kwargs)
    return probe_or_raise(recorder, symbol, args, kwargs, call, error)


def _without_cudnn(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infer a call without the kernels of cuDNN, some of which look at the memory of weights; results look alike."""
    try:
        set_cudnn_enabled(False)
        return recorder.call_symbol(symbol, args, kwargs)
    finally:
        set_cudnn_enabled(True)


def _as_number(recorder: Recorder, leaf: Any) -> Any:
    """A constant integer tensor, used as a size or an index, as the number that it is."""
    if isinstance(leaf, torch.Tensor):
        variable = recorder.variable(leaf)
        if not variable.proxy.shape and not variable.proxy.dtype.is_floating_point and recorder.is_constant(variable):
            return concrete.number(recorder, leaf)
    return leaf


def probe_or_raise(
    recorder: Recorder,
    symbol: Symbol,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Call,
    error: Exception,
    *,
    target: Callable[..., Any] | None = None,
    parameters: Iterable[torch.Tensor] = (),
) -> Any:
    """Record a call whose metadata is found by trying it on sample values, with a check of the real result after it.

    Args:
        target: what is tried; the symbol's own target by default.
        parameters: tensors that the call uses besides its arguments.

    Raises:
        AcquisitionError: the metadata depends on values, or the call cannot be tried.
    """
    with recorder.mode.observing():
        found = probe(target or symbol.target, recorder.fakes(args), recorder.fakes(kwargs))
    if found is None or (found.views and not recorder.written.isdisjoint(p.storage for p in call.proxies)):
        raise data_dependence.error(symbol, call.variables, user_location(), error) from error
    with recorder.mode.observing() as observed:
        device = call.proxies[0].device if call.proxies else torch.device("cpu")
        made = map_leaves(lambda leaf: FakeTensor(recorder.mode, leaf, device), found.result)
        outcome, fakes = infer(lambda: made, (), {}, [], observed)
    if any(found.requires_grad):
        pairs = zip(outcome.results, found.requires_grad, strict=True)
        marked = [replace(result, requires_grad=recorded) for result, recorded in pairs]
        outcome, fakes = replace(outcome, results=tuple(marked)), []
    result = record_checked(recorder, symbol, args, kwargs, call, outcome, fakes)
    if found.views:
        shown = [recorder.variable(leaf).proxy for leaf in iterate_leaves(result) if isinstance(leaf, torch.Tensor)]
        recorder.entangled.update(proxy.storage for proxy in (*shown, *call.proxies))
    return result


def record_checked(
    recorder: Recorder,
    symbol: Symbol,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Call,
    outcome: Outcome,
    fakes: list[Any],
) -> Any:
    """Record a call, and a check of its real results after it.

    Args:
        outcome: what the real results should look like.
        fakes: of the results; they may be left out.
    """
    recorded = convert(args, Call(recorder)), convert(kwargs, Call(recorder))
    result = recorder.record(symbol, *recorded, call, outcome, fakes or None, recorder.context_of(symbol))
    line = recorder.lines[-1]
    for proxy in line.outputs():
        assert isinstance(proxy, TensorProxy)
        checked = (proxy, proxy.shape, proxy.stride, proxy.dtype)
        recorder.lines.append(
            BoundSymbol(CHECK_METADATA, checked, {}, None, Effects(external=True), line.context, line.location)
        )
    return result

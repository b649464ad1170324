"""Calls that give Python a value: resolved, deferred to the running program, or checked there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.concrete import evaluate
from thunder_core.acquire.data_dependence import ValueNeeded
from thunder_core.acquire.deferred import number
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.value_request import ValueRequest
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import NumberProxy
from thunder_core.symbols.checks import CHECK_TRUE
from thunder_core.symbols.registry import registry


def read_value(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call that reads values into Python: the result if a resolver knows it, an error otherwise."""
    with recorder.suspension:
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        call = Call(recorder.inputs, args, kwargs)
        return recorder.resolve(ValueRequest(symbol, args, kwargs, call, ValueNeeded(symbol.name)))


def defer(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a comparison whose result is a Python bool that only the running program knows."""
    with recorder.suspension:
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        call = Call(recorder.inputs, args, kwargs)
        if call.foldable and all(recorder.tensors.is_constant(variable) for variable in call.variables):
            return evaluate(recorder, symbol, args, kwargs)
        proxy = NumberProxy(recorder.trace.names.intermediate(), bool)
        recorder.trace.write(symbol, call.args, call.kwargs, proxy)
        return number(recorder, proxy, symbol, tuple(call.variables))


def _is_unknown(recorder: Recorder, value: Any) -> bool:
    """Whether a value is a tensor, or a number from one, that depends on an input or on random numbers."""
    if type(value) is TracedNumber:
        return True
    return type(value) is torch.Tensor and not recorder.tensors.is_constant(recorder.tensors.variable(value))


def assert_true(recorder: Recorder, original: Callable[..., None], condition: Any, message: Any) -> None:
    """The interception of `torch._assert`: a condition that only the running program knows is checked there."""
    if not _is_unknown(recorder, condition):
        original(condition, message)
        return
    with recorder.suspension:
        if type(condition) is TracedNumber:
            args = condition.proxy, *Call(recorder.inputs, (message,), {}).args
        else:
            args = Call(recorder.inputs, (condition, message), {}).args
        recorder.trace.write(CHECK_TRUE, args, {}, effects=Effects(external=True))

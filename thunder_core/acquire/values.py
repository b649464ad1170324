"""Calls that give Python a value: resolved, deferred to the running program, or checked there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.concrete import evaluate
from thunder_core.acquire.data_dependence import ValueNeeded, error
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.value_request import ValueRequest
from thunder_core.acquire.variable import Variable
from thunder_core.ir.effects import Effects
from thunder_core.ir.proxy import NumberProxy
from thunder_core.ir.symbol import Symbol
from thunder_core.symbols.checks import CHECK_TRUE
from thunder_core.symbols.registry import registry
from thunder_core.tracing.user_frames import user_location


class TracedNumber:
    """The result of ``torch.equal`` or ``torch.allclose`` while a program is recorded.

    The program may return or store it; any use of its value raises `DataDependentError` with the user's line.
    """

    __slots__ = ("proxy", "symbol", "variables")

    def __init__(self, proxy: NumberProxy, symbol: Symbol, variables: tuple[Variable, ...]) -> None:
        self.proxy = proxy
        self.symbol = symbol
        self.variables = variables

    def _needed(self, *_: Any) -> NoReturn:
        raise error(self.symbol, self.variables, user_location(), ValueNeeded(self.symbol.name))

    __bool__ = __int__ = __float__ = __index__ = __str__ = __format__ = _needed
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _needed
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _needed
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _needed
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TracedNumber({self.proxy.name}: {self.proxy.python_type.__name__})"


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
        return TracedNumber(proxy, symbol, tuple(call.variables))


def _is_unknown(recorder: Recorder, value: Any) -> bool:
    """Whether a value is a tensor, or a number from one, that depends on an input or on random numbers."""
    if isinstance(value, TracedNumber):
        return True
    return type(value) is torch.Tensor and not recorder.tensors.is_constant(recorder.tensors.variable(value))


def assert_true(recorder: Recorder, original: Callable[..., None], condition: Any, message: Any) -> None:
    """The interception of `torch._assert`: a condition that only the running program knows is checked there."""
    if not _is_unknown(recorder, condition):
        original(condition, message)
        return
    with recorder.suspension:
        if isinstance(condition, TracedNumber):
            args = condition.proxy, *Call(recorder.inputs, (message,), {}).args
        else:
            args = Call(recorder.inputs, (condition, message), {}).args
        recorder.trace.write(CHECK_TRUE, args, {}, effects=Effects(external=True))

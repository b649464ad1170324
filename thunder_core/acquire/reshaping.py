"""Calls that change the shape or strides of their argument in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.tensors import Tensors
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.size import Size, as_found, with_size
from thunder_core.ir.symbol import Symbol
from thunder_core.pytorch_internals import OpOverload
from thunder_core.tracing.fake_tensors import make_alias
from thunder_core.tracing.outcome import Outcome, Result
from thunder_core.tracing.user_frames import user_location


def is_reshaped(result: Result, call: Call) -> bool:
    """Whether a result, which is an argument of the call, shows something else than before."""
    now, before = (result.shape, result.stride, result.offset), call.proxies[result.same_as].geometry
    # the call itself may have found two symbols to be equal
    return now != before and _as_found(now) != _as_found(before)


def _as_found(geometry: tuple[tuple[Size, ...], tuple[Size, ...], Size]) -> list[Size]:
    shape, stride, offset = geometry
    return [with_size(size, as_found) for size in (*shape, *stride, offset)]


def reshape(
    tensors: Tensors,
    call_symbol: Callable[[Symbol, tuple[Any, ...], dict[str, Any]], Any],
    symbol: Symbol,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    call: Call,
    outcome: Outcome,
) -> Any:
    """``x.t_()`` and ``out=`` of another size: the object stands for another view, or another tensor, from here on.

    NotImplemented for other calls: where they change the storage itself, PyTorch runs the lines as they were recorded.

    Args:
        call_symbol: records another call.
    """
    index = outcome.results[0].same_as
    variable, tensor = call.variables[index], call.objects[index]
    if kwargs.get("out") is tensor and is_traced(tensor) and not variable.proxy.numel:
        value = call_symbol(symbol, args, {name: item for name, item in kwargs.items() if name != "out"})
    elif symbol.functional is not None and len(outcome.results) == 1:
        assert variable.fake is not None
        with tensors.fake_mode.observing():
            variable.fake = make_alias(variable.fake, variable.proxy)  # as it was before the call
        value = call_symbol(symbol.functional, args, kwargs)
        if tensors.proxy_of(value).storage != variable.proxy.storage:
            raise _resized(symbol, variable)
        if not is_traced(tensor):
            call.inputs.reshaped[id(tensor)] = variable
    elif isinstance(symbol.target, OpOverload):
        raise _resized(symbol, variable)
    else:
        return NotImplemented
    made = tensors.variable(value)
    with tensors.fake_mode.observing():
        fake = tensors.fake(made)  # made now: it may be derived from that of ``variable``
    variable.proxy, variable.key, variable.fake = made.proxy, made.key, fake
    return tensor


def _resized(symbol: Symbol, variable: Variable) -> UnsupportedError:
    return UnsupportedError(
        f"{symbol.name} changes the size of {variable.proxy.name} in place",
        location=user_location(),
        advice=("use the out-of-place function and rebind the variable",),
    )

"""Calls that change the shape or strides of their argument in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.ir.symbol import Symbol
from thunder_core.pytorch_internals import OpOverload, no_dispatch
from thunder_core.symbols.operators import torch_call
from thunder_core.tracing.fake_tensors import make_alias
from thunder_core.tracing.outcome import Outcome, Result
from thunder_core.tracing.user_frames import user_location

if TYPE_CHECKING:
    from thunder_core.acquire.recorder import Recorder


def is_reshaped(result: Result, call: Call) -> bool:
    """Whether a result is an argument that shows something else than before the call."""
    if result.same_as < 0:
        return False
    return (result.shape, result.stride, result.offset) != call.proxies[result.same_as].geometry


def reshape(
    recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call, outcome: Outcome
) -> Any:
    """``x.t_()`` and ``out=`` of another size: the object stands for another view, or another tensor, from here on.

    NotImplemented for other calls: where they change the memory itself, PyTorch runs the lines as they were recorded.
    """
    index = outcome.results[0].same_as
    variable, tensor = call.variables[index], call.objects[index]
    if kwargs.get("out") is tensor and is_traced(tensor) and not variable.proxy.numel:
        value = recorder.call_symbol(symbol, args, {name: item for name, item in kwargs.items() if name != "out"})
    elif symbol.functional is not None and len(outcome.results) == 1:
        assert variable.fake is not None
        with recorder.mode.observing():
            variable.fake = make_alias(variable.fake, variable.proxy)  # as it was before the call
        value = recorder.call_symbol(symbol.functional, args, kwargs)
        if recorder.variable(value).proxy.storage != variable.proxy.storage:
            raise _resized(symbol, variable)
        if not is_traced(tensor):
            recorder.inputs.reshaped[id(tensor)] = variable
    elif isinstance(symbol.target, OpOverload):
        raise _resized(symbol, variable)
    else:
        return NotImplemented
    made = recorder.variable(value)
    with recorder.mode.observing():
        fake = recorder.fake(made)  # made now: it may be derived from that of ``variable``
    variable.proxy, variable.key, variable.fake = made.proxy, made.key, fake
    return tensor


def reshape_escaped(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An ATen operator that changes its first argument's view in place, called below the torch functions.

    Functorch does so, and ``set_``. Functorch reads sizes and strides of the tensor object in C++ afterwards, so they
    change with those of its proxy. The operator itself does that when it is not dispatched: the wrapper subclasses of
    PyTorch do the same.

    Raises:
        UnsupportedError: the tensor is one of the user's, which recording must leave as it is; or gets other memory.
    """
    if func.overloadpacket is torch.ops.aten.set_:
        raise UnsupportedError(
            f"{func} gives a tensor other memory",
            location=user_location(),
            advice=("rebind the variable to the other tensor instead", "assign to its attribute `data`"),
        )
    if not is_traced(args[0]):
        raise UnsupportedError(
            f"{func} changes the shape or the memory of a tensor that the program did not make",
            location=user_location(),
            advice=("use the out-of-place function", "copy_() writes new values into the memory that is there"),
        )
    result = recorder.call(*torch_call(func, args, kwargs))
    with no_dispatch():
        func(*args, **kwargs)
    return result


def _resized(symbol: Symbol, variable: Variable) -> UnsupportedError:
    return UnsupportedError(
        f"{symbol.name} changes the size of {variable.proxy.name} in place",
        location=user_location(),
        advice=("use the out-of-place function and rebind the variable",),
    )

"""Torch functions that are not recorded as one op of the trace: a table with a handler for each.

The torch-function mode (`thunder_frontend.record.mode`) sees a call and looks its function up in `HANDLERS`. A function
without a handler becomes an op of the trace (`Recorder.call`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import FunctionType, MethodWrapperType
from typing import Any, Final, cast

import torch
from torch.nn import functional

from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.location import at
from thunder_core.ir.symbol import as_recorded
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunctionSubclass,
    foreach_norm,
    set_grad_enabled,
    torch_assert,
)
from thunder_core.symbols.checks import check_true
from thunder_core.symbols.metadata import value_readers
from thunder_core.symbols.opaque import property_name
from thunder_core.symbols.registry import registry
from thunder_core.tracing.frames import called_outside_of_program, calls_program, user_location
from thunder_frontend.record import formatted_texts, profiler_ranges, subclasses
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.aten_calls import FROM_DATA
from thunder_frontend.record.constants import evaluate
from thunder_frontend.record.data_dependence import ValueNeeded, ValueRequest
from thunder_frontend.record.deferred import TensorNumbers
from thunder_frontend.record.hooks import register_hook
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.size_arguments import has_size, index_by_sizes, make_tensor, with_starts
from thunder_frontend.record.tensor_state import (
    BASE,
    GRAD,
    GRAD_FN,
    METADATA,
    STORAGE,
    VERSION,
    deepcopy,
    is_read,
    read_base,
    read_gradient,
    read_metadata,
    read_node,
    read_storage,
    read_version,
)
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize
from thunder_frontend.record.traced_tensor import describe, is_traced, reachable, variable_of

Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say

Handler = Callable[..., Any]
"""Called as ``handler(recorder, function, *args, **kwargs)``, as the handler of an `Interception`."""

_NUMBERS: Final = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith("sym_"))
_INFERRING_DTYPE: Final = frozenset({torch.tensor, torch.as_tensor, torch.asarray})
"""Functions that infer the dtype from the classes of Python and NumPy numbers."""
_INCOMPARABLE: Final = (type(None), str, bytes, list, tuple, dict, set, type, torch.dtype, torch.device)
"""Classes of objects that tensors cannot be compared with: PyTorch returns NotImplemented."""
_MOST_HELD: Final = 10_000
_CHECKED_DROPOUTS: Final = (functional.dropout, functional.alpha_dropout, functional.feature_alpha_dropout)
_DROPOUTS: Final = (
    *_CHECKED_DROPOUTS,
    *(functional.dropout1d, functional.dropout2d, functional.dropout3d),
    *(torch.dropout, torch.feature_dropout, torch.alpha_dropout, torch.feature_alpha_dropout),
)
_NORMS: Final = {
    **dict.fromkeys((torch.norm, Tensor.norm), (1, "p")),
    foreach_norm: (1, "ord"),
    **dict.fromkeys((torch.dist, Tensor.dist, torch.pairwise_distance), (2, "p")),
    **dict.fromkeys((torch.triplet_margin_loss, functional.triplet_margin_loss), (4, "p")),
}
"""Norms and distances, with the position and the name of their exponent."""
_ACTIVATIONS: Final = (
    *(functional.leaky_relu, functional.leaky_relu_, functional.elu, functional.elu_),
    *(functional.celu, torch.celu, torch.celu_),
)
_FUNCTIONAL_COLLECTIVES: Final = "torch._ops._c10d_functional"


def handler_of(func: Any) -> Handler | None:
    """The handler of a torch function, by `HANDLERS`, its kind or its module; None if it becomes an op."""
    handler = HANDLERS.get(func)
    if handler is not None:
        return handler
    if type(func) is MethodWrapperType:
        return _access_property
    module = str(getattr(func, "__module__", ""))
    if module.startswith("torch.distributed"):
        return _call_distributed
    return _call_functional_collective if module.startswith(_FUNCTIONAL_COLLECTIVES) else None


def _type(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if is_read(func, args, kwargs):
        return read_metadata(recorder, func, *args, **kwargs)
    return recorder.call(func, args, kwargs)


def _read_value(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The result of a call that reads values into Python, from a resolver; an error if none resolves it."""
    with recorder.suspension:
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        call = CallArguments(recorder.inputs, args, kwargs)
        return recorder.resolve(ValueRequest(symbol, args, kwargs, call, ValueNeeded(symbol.name)))


def _compare(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Record a comparison of tensors: the program may return the bool, and only other uses need its value."""
    with recorder.suspension:
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
        call = CallArguments(recorder.inputs, args, kwargs)
        if call.foldable and all(recorder.tensors.is_constant(variable) for variable in call.variables):
            return evaluate(recorder, symbol.target, args, kwargs)
        proxy = recorder.trace.write_number(symbol, call.args, bool, call.kwargs)
        number = TensorNumbers(recorder).traced(proxy, symbol, tuple(call.variables))
        guesses = recorder.attempt.guesses
        return number if guesses is None or guesses.numbers else number.value()


@calls_program
def _format(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    tensor = args[0]
    if type(tensor) is not Tensor or tensor.dim() or tensor.is_meta:
        with recorder.mode:  # PyTorch formats the number of a 0-d tensor, and the repr of others
            return object.__format__(*args)
    text = _placeholder(recorder, tensor, *args[1:])
    return _read_value(recorder, func, *args, **kwargs) if text is None else text


def _placeholder(recorder: Recorder, tensor: torch.Tensor, specification: str) -> str | None:
    """The text of a 0-d tensor in what the program prints; None if it has to be that of its value."""
    if recorder.attempt.guesses is None or not formatted_texts.allowed(recorder, specification):
        return None
    with recorder.mode:
        return format(_read_value(recorder, Tensor.item, tensor), specification)


def _represent(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if is_traced(args[0]) and called_outside_of_program():
        return describe(args[0])
    return _read_value(recorder, func, *args, **kwargs)


def _create_from_data(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and type(args[0]) is TracedSize:
        created = make_tensor(recorder, func, args[0], kwargs)
        if created is not None:
            return created
    numpy = sys.modules.get("numpy")
    if numpy is not None and func in _INFERRING_DTYPE and kwargs.get("dtype") is None:
        leaves = list(iterate_leaves((args, kwargs)))
        kinds = set(map(type, leaves))
        if numpy.float64 in kinds:  # becomes a float in the trace, from which PyTorch would infer the default dtype
            kwargs = {
                **kwargs,
                "dtype": torch.complex128 if any(map(_is_complex, leaves)) else torch.float64,
            }
    return recorder.call(func, args, kwargs)


def _is_complex(value: Any) -> bool:
    return value.is_complex() if isinstance(value, torch.Tensor) else isinstance(value, complex)


def _equal(recorder: Recorder, func: Any, /, tensor: Any, other: Any) -> Any:
    """``tensor == other`` or ``!=``: with such objects Python compares identities, for all sizes and numbers."""
    return NotImplemented if isinstance(other, _INCOMPARABLE) else recorder.call(func, (tensor, other), {})


def _drop_out(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Record dropout.

    `torch.nn.functional` checks the probability in Python, and with a probability of 0 PyTorch returns the argument
    itself. For a number of the trace both are conditions.
    """
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    if isinstance(p, TracedNumber | int | float):
        if func in _CHECKED_DROPOUTS and not 0.0 <= cast("float", p) <= 1.0:
            with DisableTorchFunctionSubclass():
                return func(*args, **kwargs)  # raises an exception
        args, kwargs = _with_zero(args, kwargs, 1, "p")
    return recorder.call(func, args, kwargs)


def _with_zero(
    args: tuple[Any, ...], kwargs: dict[str, Any], position: int, name: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a plain 0.0 for one that is a number of the trace and 0, which is a condition."""
    value = args[position] if len(args) > position else kwargs.get(name)
    if type(value) is not TracedNumber or value:
        return args, kwargs
    if len(args) > position:
        return (*args[:position], 0.0, *args[position + 1 :]), kwargs
    return args, {**kwargs, name: 0.0}


def _norm(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Record a norm or a distance, which has no gradient where its exponent is 0."""
    return recorder.call(func, *_with_zero(args, kwargs, *_NORMS[func]))


def _activate(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Record an activation, which autograd differentiates by its result if it is in place.

    For negative coefficients backward raises an exception then. It also differs for infinite ones.
    """
    with recorder.suspension:
        symbol, args, kwargs = registry.resolve(func, args, kwargs)
    variable = variable_of(args[0]) if symbol.functional is not None and args else None
    if variable is not None and variable.proxy.requires_grad and torch.is_grad_enabled():
        numbers: list[Any] = [
            value for value in (*args[1:], *kwargs.values()) if isinstance(value, TracedNumber | int | float)
        ]
        if not all(0 <= value < math.inf for value in numbers):
            symbol = as_recorded(symbol)
    return recorder.call_symbol(symbol, args, kwargs)


def _assert_known(recorder: Recorder, func: Any, /, condition: Any, message: Any) -> None:
    """`torch._assert` of a known condition, which `deferred.assert_true` did not record."""
    check_true(condition, message)


def _refuse_element_function(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Refuse a function that calls Python for each element of a storage: it would crash on fakes."""
    raise UnsupportedError(
        f"Tensor.{func.__name__} calls a Python function for each element",
        location=user_location(),
        advice=("compute with torch functions on the whole tensor", "do this outside of the compiled function"),
    )


def _retain_grad(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    # a result becomes an instance of its class through a view, whose gradient is not the gradient of the tensor
    subclasses.refuse_classes(args, "a tensor whose gradient is to be retained", subclasses.is_computed)
    return recorder.call(func, args, kwargs)


def _access_property(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if func.__name__ == "__set__" and property_name(func) != "data":  # which takes the elements, not the object
        subclasses.refuse_classes(args[1:], "a tensor to be assigned to an attribute", subclasses.is_computed)
    result = recorder.call(func, args, kwargs)
    # PyTorch leaks a reference to the result of a function that sets or deletes a property
    return None if func.__name__ in ("__set__", "__delete__") else result


def _call_distributed(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Run a function of `torch.distributed`; the operators that it calls are recorded one by one."""
    subclasses.refuse_classes((args, kwargs), "a tensor to be communicated", subclasses.is_computed)
    with DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _call_functional_collective(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    subclasses.refuse_classes((args, kwargs), "a tensor to be communicated", subclasses.is_computed)
    return recorder.call(func, args, kwargs)


def _call_on_numbers(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """`torch.sym_max` and the like: Python arithmetic, unless a number of the trace is among the arguments."""
    return recorder.call(func, args, kwargs) if TracedNumber in map(type, args) else func(*args, **kwargs)


def _index(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    if recorder.inputs.input_sizes is not None:
        if func is Tensor.__getitem__:
            args = (args[0], with_starts(recorder, *args))
        if has_size(args[1]):
            return index_by_sizes(recorder, func, *args)
    return recorder.call(func, args, kwargs)


def _attend_flexibly(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Record FlexAttention, unless its functions use tensors that the program computes: these are no arguments.

    Raises:
        RunEagerly: they do.
    """
    functions = [value for value in iterate_leaves((args, kwargs)) if isinstance(value, FunctionType)]
    held = [tensor for function in functions for tensor in reachable(function, _MOST_HELD, torch.Tensor)]
    if any(is_traced(tensor) for tensor in held):
        raise RunEagerly(f"a function of FlexAttention uses a tensor that the program computes{at(user_location())}")
    return recorder.call(func, args, kwargs)


def _set_grad_enabled(recorder: Recorder, original: Any, enabled: bool) -> None:
    set_grad_enabled(enabled)  # each op stores the modes that it was called under


HANDLERS: Final[dict[Any, Handler]] = {
    **dict.fromkeys(METADATA, read_metadata),
    **dict.fromkeys(value_readers(), _read_value),
    **dict.fromkeys(STORAGE, read_storage),
    **dict.fromkeys((torch.equal, Tensor.equal, torch.allclose, Tensor.allclose), _compare),
    **dict.fromkeys(FROM_DATA | _INFERRING_DTYPE, _create_from_data),
    **dict.fromkeys((Tensor.apply_, Tensor.map_, Tensor.map2_), _refuse_element_function),
    **dict.fromkeys(_NUMBERS, _call_on_numbers),
    **profiler_ranges.HANDLERS,
    **dict.fromkeys(_DROPOUTS, _drop_out),
    **dict.fromkeys(_NORMS, _norm),
    **dict.fromkeys(_ACTIVATIONS, _activate),
    **dict.fromkeys((Tensor.__eq__, Tensor.__ne__), _equal),
    **dict.fromkeys((Tensor.__getitem__, Tensor.__setitem__), _index),
    VERSION: read_version,
    GRAD_FN: read_node,
    GRAD: read_gradient,
    BASE: read_base,
    Tensor.type: _type,
    Tensor.__format__: _format,
    Tensor.__repr__: _represent,
    Tensor.retain_grad: _retain_grad,
    Tensor.__deepcopy__: deepcopy,
    Tensor.register_hook: register_hook,
    Tensor.register_post_accumulate_grad_hook: register_hook,
    set_grad_enabled: _set_grad_enabled,
    torch.ops.higher_order.flex_attention: _attend_flexibly,
    torch_assert: _assert_known,
}
"""The handler of each function that is not simply recorded as an op of the trace."""

"""ATen calls that did not pass the torch-function mode: recorded at that level."""

from __future__ import annotations

import warnings
from typing import Any, Final

import torch

from thunder_core.acquire import collectives, wrapper_calls
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.subclasses import has_torch_dispatch
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import DisableTorchFunction, no_dispatch, schema_of
from thunder_core.symbols.operators import torch_call
from thunder_core.symbols.registry import registry
from thunder_core.tracing.user_frames import user_location

_NUMBERS: Final = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""What tensors of Python's numbers are; operators of one such tensor give results of these dtypes."""


def record(
    recorder: Recorder, func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """An ATen call that did not pass the torch-function mode: record it at that level, or run what a class makes of it.

    Dispatch suspends the fake mode while it handles the call. It is active again for the inference, where it
    observes effects, and without which operators that take no tensor, such as ``empty``, would compute real ones.
    """
    kinds = tuple([kind for kind in types if has_torch_dispatch(kind)])
    if kinds:
        return wrapper_calls.dispatch(recorder, func, kinds, args, kwargs)
    if registry.is_metadata(func):
        with recorder.tensors.fake_mode:
            return recorder.tensors.ask(func, args, kwargs)
    if schema_of(func).name.startswith("c10d::"):
        with recorder.tensors.fake_mode:
            return collectives.record(recorder, func, args, kwargs)
    with DisableTorchFunction(), recorder.tensors.fake_mode, warnings.catch_warnings():
        # functorch's own tensors are no leaves, and meta kernels look at their ``.grad``
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        args = _with_tensors(recorder, func, args)
        if torch.Tag.inplace_view in func.tags:
            return _reshape(recorder, func, args, kwargs)
        if schema_of(func).is_mutable:  # functorch relies on what exactly these do to the object
            return recorder.call(func, args, kwargs)
        return recorder.call(*torch_call(func, args, kwargs))


def _with_tensors(recorder: Recorder, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` with tensors for numbers, where an operator of tensors is given numbers alone.

    Dispatch passes the tensors that PyTorch makes of Python numbers as these numbers. Functions of a tensor and a
    number take them, a batching rule that converts one number does not.
    """
    if not args or type(args[0]) not in _NUMBERS or any(isinstance(arg, torch.Tensor) for arg in args):
        return args
    expected = schema_of(func).arguments
    return tuple(
        [
            recorder.call(torch.scalar_tensor, (arg,), {"dtype": _NUMBERS[type(arg)]})
            if type(arg) in _NUMBERS and str(argument.type) == "Tensor"
            else arg
            for arg, argument in zip(args, expected, strict=False)
        ]
    )


def _reshape(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
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

"""Calls below the torch functions: under transformations of `torch.func`, and ATen calls from C++."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.formulas_in_python import reads_objects
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.size import are_constant
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    aten_local_scalar_dense,
    no_dispatch,
    schema_of,
    temporarily_clear_interpreter_stack,
)
from thunder_core.symbols.operators import torch_call
from thunder_core.symbols.python_kernels import python_batching_rules
from thunder_core.symbols.registry import registry
from thunder_core.tracing.frames import user_location
from thunder_core.tracing.sizes import kernels_for_sizes
from thunder_frontend.record import batching_rules
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.communication import communication
from thunder_frontend.record.data_dependence import ValueNeeded, ValueRequest
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.subclasses import has_torch_dispatch
from thunder_frontend.record.traced_number import value_of
from thunder_frontend.record.traced_size import traced, untraced
from thunder_frontend.record.traced_tensor import is_traced, is_transformed

Tensor: Any = torch.Tensor  # its methods are descriptors; the stubs declare functions
FROM_DATA: Final = frozenset({torch.tensor, torch.as_tensor, torch.scalar_tensor})
"""Functions that create tensors from Python data below the dispatcher, where batching rules do not see them."""
_NUMBERS: Final = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}
"""The dtypes of tensors that PyTorch creates from Python numbers, by the type of the number."""


def record_aten(
    recorder: Recorder, func: Any, types: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record an ATen call that did not pass the torch-function mode, or run the ``__torch_dispatch__`` of a class.

    Dispatch suspends the fake mode while it handles the call. Inference enters it again, to observe effects, and so
    that operators without tensor arguments, such as ``empty``, return fakes.
    """
    kinds = tuple([kind for kind in types if has_torch_dispatch(kind)])
    if kinds:
        return recorder.wrapper_calls.dispatch(func, kinds, args, kwargs)
    if registry.is_metadata(func):
        with recorder.tensors.fake_mode:
            return recorder.tensors.query(func, args, kwargs)
    if schema_of(func).name.startswith("c10d::"):
        with recorder.tensors.fake_mode:
            return communication().record(recorder, func, args, kwargs)
    if func is aten_local_scalar_dense:
        with DisableTorchFunction(), recorder.suspension, temporarily_clear_interpreter_stack():
            return _value(recorder, args)
    with DisableTorchFunction(), recorder.tensors.fake_mode, warnings.catch_warnings():
        # functorch's own tensors are not leaves, and meta kernels read their ``.grad``
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor that is not a leaf")
        args = _with_tensors(recorder, func, args)
        if torch.Tag.inplace_view in func.tags:
            return _reshape(recorder, func, args, kwargs)
        if schema_of(func).is_mutable:  # functorch relies on the exact changes to the tensor object
            return recorder.call(func, args, kwargs)
        return recorder.call(*torch_call(func, args, kwargs))


def _value(recorder: Recorder, args: tuple[Any, ...]) -> Any:
    """The value of a tensor as a Python number: code below the torch functions branches on it, or returns it."""
    read = Tensor.__bool__ if args[0].dtype is torch.bool else Tensor.item
    symbol, args, kwargs = registry.resolve(read, args, {})
    call = CallArguments(recorder.inputs, args, kwargs)
    return value_of(recorder.resolve(ValueRequest(symbol, args, kwargs, call, ValueNeeded(symbol.name))))


def _with_tensors(recorder: Recorder, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """``args`` with tensors in place of numbers, for an operator on tensors that is called with numbers alone.

    PyTorch converts Python numbers to tensors, which dispatch unwraps to numbers again. Operators on a tensor and a
    number accept these, but a batching rule that converts a single number does not.
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
    """Record an ATen operator that changes its first argument's view in place, called below the torch functions.

    Functorch calls such operators, and ``set_``. Afterwards it reads sizes and strides of the tensor object in C++, so
    these have to change together with those of its proxy. Running the operator without dispatch changes them, as
    PyTorch's wrapper subclasses do.

    Raises:
        UnsupportedError: the tensor is one of the user's, which recording must not change; or gets another storage.
    """
    if func.overloadpacket is torch.ops.aten.set_:
        raise UnsupportedError(
            f"{func} gives a tensor another storage",
            location=user_location(),
            advice=("rebind the variable to the other tensor instead", "assign to its attribute `data`"),
        )
    if not is_traced(args[0]):
        raise UnsupportedError(
            f"{func} changes the shape or the storage of a tensor that the program did not create",
            location=user_location(),
            advice=("use the out-of-place function", "copy_() writes new values into the existing storage"),
        )
    result = recorder.call(*torch_call(func, args, kwargs))
    with no_dispatch():
        func(*args, **kwargs)
    return result


def call_transformed(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a call under a transformation of `torch.func`: batching rules turn it into ATen calls, which become ops.

    Raises:
        UnsupportedError: the call formats the values of a tensor.
        RunEagerly: a function of Python runs in place of an operator, and may read variables, which may change.
    """
    if func is Tensor.__repr__ or func is Tensor.__format__:
        raise UnsupportedError(
            "a function under a transformation of torch.func formats the values of a tensor",
            location=user_location(),
            advice=("return the tensor from the transformation and print it there",),
        )
    rules = python_batching_rules(func)
    if rules is None or any(map(reads_objects, rules)):
        raise RunEagerly(f"a function of Python may read variables, which runs for {func} under a transformation")
    if func in FROM_DATA:
        with temporarily_clear_interpreter_stack():
            return recorder.call(func, args, kwargs)
    if recorder.inputs.input_sizes is None:
        with DisableTorchFunctionSubclass(), _with_versions(func):
            return func(*args, **kwargs)
    args, kwargs = map_leaves(partial(_with_symbols, recorder), (args, kwargs))
    kernels = kernels_for_sizes(func, args, kwargs)
    with DisableTorchFunctionSubclass(), _with_versions(func), batching_rules.installed(), kernels:
        return traced(func(*args, **kwargs))


def _with_symbols(recorder: Recorder, leaf: Any) -> Any:
    """An argument as PyTorch's transformations take it: they read sizes from the tensor object, in C++.

    So an input with symbolic sizes is replaced by a traced tensor for the same variable, which has these sizes.
    """
    if not isinstance(leaf, torch.Tensor) or is_traced(leaf) or is_transformed(leaf):
        return untraced(leaf)
    variable = recorder.tensors.variable(leaf)
    return leaf if are_constant(variable.proxy.shape) else recorder.tensors.traced(variable)


def wrap_input(recorder: Recorder, original: Callable[..., Any], tensor: torch.Tensor, /, *args: Any) -> Any:
    """The interception of functions by which a transformation of `torch.func` wraps its arguments."""
    if recorder.inputs.input_sizes is None:
        return original(tensor, *args)
    return original(*map(partial(_with_symbols, recorder), (tensor, *args)))


@contextmanager
def _with_versions(func: Any) -> Iterator[None]:
    """Leave inference mode for the backward of a transformation, which reads versions of saved tensors."""
    if func is torch.autograd.grad and torch.is_inference_mode_enabled():
        with torch.inference_mode(False), torch.no_grad():
            yield
    else:
        yield

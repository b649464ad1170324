"""The torch-function mode under which the user's program runs."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

import torch

from thunder_core.errors import EndsRecording, SizeVariesError, UnsupportedError
from thunder_core.pytorch_internals import (
    is_torch_function_enabled,
    peek_interpreter_stack,
)
from thunder_core.symbols.recording import RecordingMode
from thunder_core.tracing.frames import calls_program, user_location
from thunder_core.tracing.signal_handlers import of_signal_handler
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record import subclasses
from thunder_frontend.record.aten_calls import call_transformed
from thunder_frontend.record.attempt import CONSTANT_NUMBERS, RecordAgain
from thunder_frontend.record.call_handlers import handler_of
from thunder_frontend.record.control_flow import OPERATORS
from thunder_frontend.record.function_bodies import calling_replaced
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.tensor_classes import current_tensor_classes
from thunder_frontend.record.tensor_state import guard_reads
from thunder_frontend.record.traced_size import traced_size
from thunder_frontend.record.traced_tensor import Variable, any_transformed, variable_of

Tensor: Any = torch.Tensor  # its properties are descriptors; the stubs declare values

# Metadata that is read from the proxy, as large models read it thousands of times.
_FAST: dict[Any, Callable[[Variable], Any]] = {
    Tensor.shape.__get__: lambda variable: _size(variable),
    Tensor.dtype.__get__: lambda variable: variable.proxy.dtype,
    Tensor.device.__get__: lambda variable: variable.proxy.device,
    Tensor.ndim.__get__: lambda variable: len(variable.proxy.shape),
    Tensor.dim: lambda variable: len(variable.proxy.shape),
    Tensor.numel: lambda variable: traced_size(variable.proxy.numel),
    Tensor.is_cuda.__get__: lambda variable: variable.proxy.device.type == "cuda",
    Tensor.is_nested.__get__: lambda variable: False,
    Tensor.is_sparse.__get__: lambda variable: variable.proxy.layout is torch.sparse_coo,
    Tensor.layout.__get__: lambda variable: variable.proxy.layout,
    Tensor.is_floating_point: lambda variable: variable.proxy.dtype.is_floating_point,
    Tensor.__len__: lambda variable: _length(variable),
}
_SIZE: Final = Tensor.size
_ID: Final = id


def _size(variable: Variable) -> torch.Size:
    return torch.Size(map(traced_size, variable.proxy.shape))


@calls_program
def _length(variable: Variable) -> int:
    if not variable.proxy.shape:
        raise TypeError("len() of a 0-d tensor")
    return int(traced_size(variable.proxy.shape[0]))  # the builtin accepts no symbol as a length


def length(value: Any) -> Any:
    """The result of ``len`` where it may vary between calls; `NotImplemented` where the builtin decides."""
    if type(value) is not Tensor or not value.ndim:
        return NotImplemented
    return value.shape[0]


def _check_identities() -> None:
    """Refuse to record while ``builtins.id`` is a function that does not return the identities of objects."""
    if builtins.id(Tensor) != _ID(Tensor):
        builtins.id = _ID  # undoing the writes of the program relies on it, too
        raise UnsupportedError(
            "builtins.id is a function that returns other numbers than the identities of objects, on which PyTorch and "
            "Thunder rely",
            location=user_location(),
            advice=("replace it in the Python module that calls it: module.id = function",),
        )


class AcquisitionMode(RecordingMode):
    """Passes each torch call to the recorder; reads of metadata return at once.

    Attributes:
        recorder: records calls as ops.
        observer: observes the reads of the program. Interceptions of plugins may pause it, and add guards instead.
    """

    def __init__(self, recorder: Recorder, observer: Observer) -> None:
        self.recorder = recorder
        recorder.mode = self
        recorder.wrapper_calls = current_tensor_classes().start(recorder, observer)
        self.observer = observer

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if this_thread.recorder is None:  # in an import
            return func(*args, **(kwargs or {}))
        fast = _FAST.get(func)
        if fast is not None and args and type(args[0]) is Tensor and (variable := variable_of(args[0])) is not None:
            return fast(variable)
        if func is _SIZE and not kwargs and type(args[0]) is Tensor and (variable := variable_of(args[0])) is not None:
            return traced_size(variable.proxy.shape[args[1]]) if len(args) > 1 else _size(variable)
        control_flow = OPERATORS.get(func)
        if control_flow is not None:
            with self:  # the functions among its arguments are the program's
                return control_flow(self.recorder, func, *args, **(kwargs or {}))
        if types and is_torch_function_enabled():  # some methods name the class though it is disabled
            kinds = tuple([kind for kind in types if subclasses.overrides_calls(kind)])
            if kinds:
                with self:
                    return subclasses.dispatch(func, kinds, args, kwargs or {})
        wrappers = subclasses.wrappers((*args, *kwargs.values()) if kwargs else args)
        if wrappers:
            return self.recorder.wrapper_calls.call(func, args, kwargs or {}, wrappers)
        self.observer.check_may_record()
        self.observer.pause()
        try:
            if builtins.id is not _ID:
                _check_identities()
            body = calling_replaced(self.recorder, func)
            if body is None:
                return self._call(func, args, kwargs or {})
        except EndsRecording:
            raise
        except Exception as error:
            if of_signal_handler(error) is not None:
                raise
            # the program may catch it, and it may depend on sizes or numbers: with constants it equals eager's
            if self.recorder.attempt.converting:
                raise RecordAgain("a call failed with numbers of the trace", converting=None) from error
            if self.recorder.has_traced_numbers:
                raise RecordAgain("a call failed with numbers of the trace", guesses=CONSTANT_NUMBERS) from error
            if self.recorder.inputs.input_sizes is None:
                raise
            raise SizeVariesError(f"{type(error).__name__}: {error}", location=user_location()) from error
        finally:
            self.observer.resume()
        with self:
            return body(*args, **(kwargs or {}))

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        guard_reads(self.recorder, func, args, kwargs)
        first = args[0] if args and type(args[0]) is tuple else ()  # `torch.autograd.grad` of results of vjp
        if peek_interpreter_stack() is not None or any_transformed((*args, *first, *kwargs.values())):
            return call_transformed(self.recorder, func, args, kwargs)
        handler = handler_of(func)
        if handler is None:
            return self.recorder.call(func, args, kwargs)
        return handler(self.recorder, func, *args, **kwargs)

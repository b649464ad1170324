"""The torch-function mode under which the user's program runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import MethodWrapperType
from typing import Any, Final

import torch

from thunder_core.acquire import copies, size_tensors, subclasses, values, wrapper_calls, wrapper_derivatives
from thunder_core.acquire.active import this_thread
from thunder_core.acquire.autograd_reads import BASE, GRAD, GRAD_FN, read_base, read_gradient, read_node
from thunder_core.acquire.control_flow import HANDLERS
from thunder_core.acquire.defined_sizes import varies_by_values
from thunder_core.acquire.hooks import register_hook
from thunder_core.acquire.indexing import INDEXING, has_size, index_by_sizes, with_starts
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.region import Region
from thunder_core.acquire.traced_number import NumbersNeeded, TracedNumber
from thunder_core.acquire.traced_size import TracedSize, traced, traced_size, untraced
from thunder_core.acquire.traced_tensor import describe, is_traced, variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.errors import EndsRecording, SizeVariesError, UnsupportedError
from thunder_core.guards.observer import Observer
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    DisableTorchFunctionSubclass,
    identity_property,
    is_functorch_wrapped_tensor,
    is_torch_function_enabled,
    is_view,
    no_dispatch,
    peek_interpreter_stack,
    set_grad_enabled,
    temporarily_clear_interpreter_stack,
    version_of,
    version_property,
)
from thunder_core.symbols.metadata import value_readers
from thunder_core.symbols.recording import RecordingMode
from thunder_core.symbols.registry import registry
from thunder_core.tracing.user_frames import asked_by_debugger, called_by_nested_tensors, user_location

Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say

# Questions that the proxy answers without its fake; asked thousands of times in a large model.
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
_SIZE = Tensor.size
_ASKS_SIZES = frozenset(
    {
        *(Tensor.shape.__get__, Tensor.size, Tensor.stride, Tensor.numel, Tensor.nelement, Tensor.__len__, torch.numel),
        *(Tensor.nbytes.__get__, Tensor.is_same_size, torch.is_same_size),
    }
)
_ASKS_STRIDES = frozenset({Tensor.stride, Tensor.is_contiguous})
_VERSION = version_property.__get__
# Where the memory is: not a value that could be computed, and nothing that a trace could hold.
_MEMORY = frozenset(
    {
        *(Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage, Tensor.is_set_to, Tensor.__reduce_ex__),
        identity_property.__get__,
        getattr(Tensor, "const_data_ptr", Tensor.data_ptr),  # since PyTorch 2.13
    }
)
# Python functions on the elements in memory, below the dispatcher: fakes would crash.
_ON_ELEMENTS = frozenset({Tensor.apply_, Tensor.map_, Tensor.map2_})
_COMMUNICATION = ("torch.distributed", "torch._ops._c10d_functional")
# They tell of an object that existed before the program, beside what fakes know.
_READS_OBJECT = _MEMORY | {GRAD, BASE, Tensor.__deepcopy__}
# Their result is a bool that a program may return; only using it needs its value.
_DEFERRED = frozenset({torch.equal, Tensor.equal, torch.allclose, Tensor.allclose})
# Of numbers, sizes among them: `torch.sym_max` and the like.
_OF_NUMBERS = frozenset(getattr(torch, name) for name in dir(torch) if name.startswith("sym_"))
_value_reads = value_readers() - _MEMORY
_TEXT = frozenset({Tensor.__repr__, Tensor.__format__})
# They make tensors of Python data, below the level where batching rules and the fake mode would see it.
_FROM_DATA = frozenset({torch.tensor, torch.as_tensor, torch.scalar_tensor})


def _size(variable: Variable) -> torch.Size:
    return torch.Size(map(traced_size, variable.proxy.shape))


def _length(variable: Variable) -> int:
    if not variable.proxy.shape:
        raise TypeError("len() of a 0-d tensor")
    return int(traced_size(variable.proxy.shape[0]))  # the builtin takes no symbol for a length


def _check_strides(recorder: Recorder, args: tuple[Any, ...]) -> None:
    """Raise SizeVariesError where the program reads strides that may differ for sizes 0 and 1."""
    sizes = None if recorder.defined_sizes is None else recorder.defined_sizes.sizes
    variable = variable_of(args[0]) if args and isinstance(args[0], torch.Tensor) else None
    if sizes is not None and sizes.general and variable is not None and varies_by_values(variable.proxy, sizes):
        raise SizeVariesError("the program asks for strides, which depend on values", location=user_location())


def length(value: Any) -> Any:
    """What ``len`` gives the program, where that may vary; `NotImplemented` for what the builtin gives."""
    if type(value) is not Tensor or not value.ndim:
        return NotImplemented
    return value.shape[0]


class AcquisitionMode(RecordingMode):
    """Hands each torch call to the recorder; answers questions about metadata at once.

    Attributes:
        recorder: makes lines of calls.
        observer: sees what the program reads. Interceptions of plugins may pause it, and add guards instead.
    """

    def __init__(self, recorder: Recorder, observer: Observer) -> None:
        self.recorder = recorder
        recorder.mode = self
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
        control_flow = HANDLERS.get(func)
        if control_flow is not None:
            with self:  # the functions that it is given are the program's
                return control_flow(self.recorder, *args, **(kwargs or {}))
        if types and is_torch_function_enabled():  # some methods name the class though it is disabled
            kinds = tuple([kind for kind in types if subclasses.is_handed_calls(kind)])
            if kinds:
                with self:
                    return subclasses.dispatch(func, kinds, args, kwargs or {})
        wrappers = subclasses.wrappers((*args, *kwargs.values()) if kwargs else args)
        if wrappers:
            return self.call_with_wrappers(func, args, kwargs or {}, wrappers)
        self.observer.pause()
        try:
            return self._call(func, args, kwargs or {})
        except Exception as error:
            if isinstance(error, EndsRecording):
                raise
            if self.recorder.keeps_numbers:
                raise NumbersNeeded from error
            if self.recorder.inputs.input_sizes is None:
                raise
            # the program may catch it, and it may be of sizes: with constants it is eager's for sure
            raise SizeVariesError(f"{type(error).__name__}: {error}", location=user_location()) from error
        finally:
            self.observer.resume()

    def call_with_wrappers(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], wrappers: list[torch.Tensor]
    ) -> Any:
        """A call of the program with these wrapper subclasses among its arguments."""
        return wrapper_calls.call(self.recorder, self.observer, func, args, kwargs, wrappers)

    def end_region(self, region: Region, first: int) -> None:
        """A checkpoint region ends: complete the lines of its calls with wrapper subclasses, the first is given."""
        if len(self.recorder.differentiable_calls) == first:
            return
        self.observer.pause()
        try:
            with DisableTorchFunction():
                wrapper_derivatives.record_derivatives_of_region(self.recorder, self.observer, region, first)
        finally:
            self.observer.resume()

    def _call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first = args[0] if args and type(args[0]) is tuple else ()  # `torch.autograd.grad` of what vjp returned
        transformed = peek_interpreter_stack() is not None or any_wrapped((*args, *first, *kwargs.values()))
        if transformed or func in _SPECIAL or type(func) is MethodWrapperType or registry.is_metadata(func):
            return self._special(func, args, kwargs, transformed=transformed)
        if func in _OF_NUMBERS and TracedNumber not in map(type, args):
            return func(*args, **kwargs)
        if str(getattr(func, "__module__", "")).startswith(_COMMUNICATION):
            return self._special(func, args, kwargs, transformed=transformed)
        if func in INDEXING and self.recorder.inputs.input_sizes is not None:
            if func is Tensor.__getitem__:
                args = (args[0], with_starts(self.recorder, *args))
            if has_size(args[1]):
                return index_by_sizes(self.recorder, func, *args)
        return self.recorder.call(func, args, kwargs)

    def _special(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, transformed: bool) -> Any:
        """A call that is not, or not only, a line.

        Args:
            transformed: under a transformation of `torch.func`, or of a tensor of one.
        """
        metadata = (registry.is_metadata(func) and func not in _MEMORY) or (
            func is Tensor.type and len(args) == 1 and not kwargs
        )
        if metadata or func in _READS_OBJECT:
            given = (*args, *kwargs.values())
            self.observer.asked(func, [arg for arg in given if not is_traced(arg) and not _wrapped(arg)])
        if transformed:
            if self.recorder.inputs.input_sizes is not None:  # tensors of vmap have sizes of this call, without a guard
                raise SizeVariesError("a transformation of torch.func reads sizes", location=user_location())
            if func in _TEXT:
                raise UnsupportedError(
                    "a function under a transformation of torch.func shows the values of a tensor",
                    location=user_location(),
                    advice=("return the tensor from the transformation and print it there",),
                )
            if func in _FROM_DATA:
                with temporarily_clear_interpreter_stack():
                    return self.recorder.call(func, args, kwargs)
            with DisableTorchFunctionSubclass(), _versions(func):
                return func(*args, **kwargs)  # batching rules turn it into ATen calls, recorded as they come out
        if func is Tensor.__format__ and (type(args[0]) is not Tensor or args[0].dim() or args[0].is_meta):
            with self:  # PyTorch formats the number of a tensor without dimensions, and takes the text of others
                return object.__format__(*args)
        if func is Tensor.__repr__ and is_traced(args[0]) and asked_by_debugger():
            return describe(args[0])
        if func in _MEMORY:
            known = any(isinstance(arg, torch.Tensor) and self.recorder.tensors.find(arg) is not None for arg in args)
            if not known and func is not Tensor.__reduce_ex__:  # that gives elements away, too
                with no_dispatch():
                    return func(*args, **kwargs)
        if func in _MEMORY and self.recorder.tensors.find(args[0]) is not None:
            if func is Tensor.untyped_storage and called_by_nested_tensors():  # how large it is
                return self.recorder.tensors.ask(func, args, kwargs)
            name = getattr(func, "__self__", func).__name__
            raise UnsupportedError(
                f"Tensor.{name} of a tensor of the program: it has no memory while the program is recorded",
                location=user_location(),
                advice=("do this outside of the compiled function",),
            )
        module = str(getattr(func, "__module__", ""))
        if module.startswith(_COMMUNICATION):
            subclasses.refuse_classes((args, kwargs), "a tensor to be communicated", subclasses.is_computed)
        if func is Tensor.retain_grad:  # the class is given to a result by a view, which the gradient is not for
            subclasses.refuse_classes(args, "a tensor whose gradient is to be retained", subclasses.is_computed)
        if type(func) is MethodWrapperType and func.__name__ == "__set__":
            subclasses.refuse_classes(args[1:], "a tensor to be assigned to an attribute", subclasses.is_computed)
        if module.startswith("torch.distributed"):
            with DisableTorchFunctionSubclass():  # the operators that it calls are recorded as they come out
                return func(*args, **kwargs)
        if func in _ON_ELEMENTS:
            raise UnsupportedError(
                f"Tensor.{func.__name__} calls a Python function for each element",
                location=user_location(),
                advice=("compute with torch functions on the whole tensor", "do this outside of the compiled function"),
            )
        if metadata:
            return read_node(self.recorder, *args) if func == GRAD_FN else self._metadata(func, args, kwargs)
        if func in _DEFERRED:
            return values.defer(self.recorder, func, args, kwargs)
        if func in _value_reads:
            return values.read_value(self.recorder, func, args, kwargs)
        if func in _FROM_DATA and len(args) == 1 and type(args[0]) is TracedSize:
            made = size_tensors.make_tensor(self.recorder, func, args[0], kwargs)
            if made is not None:
                return made
        intercept = _INTERCEPTS.get(func)
        if intercept is not None:
            return intercept(self.recorder, *args, **kwargs)
        result = self.recorder.call(func, args, kwargs)
        # PyTorch never releases what it is given for an assignment to a property
        return None if type(func) is MethodWrapperType and func.__name__ in ("__set__", "__delete__") else result

    def _metadata(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer from fakes; real tensors that the program never computed with answer for themselves."""
        recorder = self.recorder
        if func in _ASKS_STRIDES:
            _check_strides(recorder, args)
        if func is Tensor.stride:
            recorder.saw_strides = True
        given = (*args, *kwargs.values())
        if recorder.inputs.input_sizes is not None and func in _ASKS_SIZES:
            self._meet_sizes(given)
        if not any(isinstance(arg, torch.Tensor) and recorder.tensors.find(arg) is not None for arg in given):
            return traced(func(*map(untraced, args), **kwargs))
        answer = traced(recorder.tensors.ask(func, args, kwargs))
        if func == _VERSION:
            return answer + self._version_before(args[0])
        if isinstance(answer, torch.Tensor):
            raise UnsupportedError(
                f"{getattr(func, '__name__', func)} of a traced tensor returns a tensor that was not computed here",
                location=user_location(),
                advice=("avoid it in the compiled function",),
            )
        return answer

    def _meet_sizes(self, values: tuple[Any, ...]) -> None:
        """Tensors whose sizes are asked for become inputs of the trace, if their sizes may vary."""
        inputs = self.recorder.inputs
        for value in values:
            if isinstance(value, torch.Tensor) and self.recorder.tensors.find(value) is None:
                assert inputs.input_sizes is not None
                if inputs.input_sizes.may_vary(value) and inputs.is_found(value):
                    with self.recorder.suspension, DisableTorchFunction():
                        inputs.lift(value)

    def _version_before(self, tensor: torch.Tensor) -> int:
        """How many writes the memory of an input, or of a view of one, had seen when the program began."""
        recorder = self.recorder
        if is_traced(tensor) and not recorder.tensors.ask(is_view, (tensor,), {}):
            return 0
        storage = recorder.tensors.proxy_of(tensor).storage
        for proxy, value in zip(recorder.inputs.proxies, recorder.inputs.objects, strict=True):
            if isinstance(value, torch.Tensor) and getattr(proxy, "storage", None) == storage:
                self.observer.asked(_VERSION, [value])
                return int(version_of(value))
        return 0


@contextmanager
def _versions(func: Any) -> Iterator[None]:
    """For the backward of a function transform: what autograd saved has versions, which inference mode lacks."""
    if func is torch.autograd.grad and torch.is_inference_mode_enabled():
        with torch.inference_mode(False), torch.no_grad():
            yield
    else:
        yield


def _wrapped(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value)


def any_wrapped(values: tuple[Any, ...]) -> bool:
    """Whether a transformation of `torch.func` has wrapped one of the tensors among these values."""
    for value in values:  # noqa: SIM110 - a generator takes twice as long, and this is called for each line
        if isinstance(value, torch.Tensor) and is_functorch_wrapped_tensor(value):
            return True
    return False


def _set_grad_enabled(recorder: Recorder, enabled: bool) -> None:
    set_grad_enabled(enabled)  # each line remembers the modes that it ran under


_INTERCEPTS: dict[Any, Callable[..., Any]] = {
    Tensor.__deepcopy__: copies.deepcopy,
    GRAD: read_gradient,
    BASE: read_base,
    Tensor.register_hook: register_hook(Tensor.register_hook),
    Tensor.register_post_accumulate_grad_hook: register_hook(Tensor.register_post_accumulate_grad_hook),
    set_grad_enabled: _set_grad_enabled,
}
# What `_special` looks at, besides properties, what the tables call metadata, and communication.
_SPECIAL: Final = frozenset(
    {*_READS_OBJECT, *_TEXT, *_FROM_DATA, *_ON_ELEMENTS, *_DEFERRED, *_value_reads, *_INTERCEPTS}
    | {Tensor.type, Tensor.retain_grad}
)

"""Reads of the state of tensor objects (metadata, version, storage, autograd state), and deep copies."""

from __future__ import annotations

import copy
from typing import Any, Final, NoReturn

import torch

from thunder_core.checks.plain import is_plain_content
from thunder_core.checks.varying_sizes import may_vary
from thunder_core.errors import SizeVariesError, UnsupportedError
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import map_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    identity_property,
    is_view,
    no_dispatch,
    version_of,
    version_property,
    view_base,
    view_base_getter,
)
from thunder_core.symbols.metadata import metadata_functions
from thunder_core.tracing.frames import calling_module, calls_program, library_callers, user_location
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.result_sizes import varies_by_values
from thunder_frontend.record.tensors import Tensors
from thunder_frontend.record.traced_size import traced, untraced
from thunder_frontend.record.traced_tensor import Variable, is_traced, is_transformed, variable_of

Tensor: Any = torch.Tensor  # its properties are descriptors; the stubs declare values
BASE = view_base_getter
GRAD = Tensor.grad.__get__
GRAD_FN = Tensor.grad_fn.__get__
VERSION: Final = version_property.__get__
STORAGE: Final = frozenset(
    {
        *(Tensor.data_ptr, Tensor.untyped_storage, Tensor.storage, Tensor.is_set_to, Tensor.__reduce_ex__),
        identity_property.__get__,
        getattr(Tensor, "const_data_ptr", Tensor.data_ptr),  # since PyTorch 2.13
    }
)
"""Functions that return the storage of a tensor, or its address: a traced tensor has neither."""
METADATA: Final = metadata_functions() - STORAGE
_READS: Final = METADATA | STORAGE | {GRAD, BASE, Tensor.__deepcopy__, Tensor.type}
_IS_LEAF: Final = Tensor.is_leaf.__get__
_SIZES: Final = frozenset(
    {
        *(Tensor.shape.__get__, Tensor.size, Tensor.stride, Tensor.numel, Tensor.nelement, Tensor.__len__, torch.numel),
        *(Tensor.nbytes.__get__, Tensor.is_same_size, torch.is_same_size),
    }
)
_INFERENCE: Final = frozenset({Tensor.is_inference, torch.is_inference})
_STRIDES: Final = frozenset({Tensor.stride, Tensor.is_contiguous})


def is_read(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call reads state of a tensor object. ``tensor.type()`` does, ``tensor.type(dtype)`` is a cast."""
    return func in _READS and (func is not Tensor.type or len(args) + len(kwargs) == 1)


def guard_reads(recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Guard the state that a call reads from tensors which existed before the program."""
    if is_read(func, args, kwargs):
        values = (*args, *kwargs.values())
        recorder.mode.observer.metadata_read(
            func, [arg for arg in values if not is_traced(arg) and not is_transformed(arg)]
        )


def read_metadata(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Read metadata from the fakes, or from the real tensors where no argument is an input of the trace yet."""
    if func in _STRIDES:
        _check_strides(recorder, args)
    if func is Tensor.stride:
        recorder.saw_strides = True
    values = (*args, *kwargs.values())
    if func in _INFERENCE and (variable := variable_of(values[0])) is not None:
        return variable.proxy.storage in recorder.trace.storages.of_inference
    if recorder.inputs.input_sizes is not None and func in _SIZES:
        _lift_varying(recorder, values)
    if not any(isinstance(arg, torch.Tensor) and recorder.tensors.find(arg) is not None for arg in values):
        return traced(func(*map_leaves(untraced, args), **map_leaves(untraced, kwargs)))
    result = traced(recorder.tensors.query(func, args, kwargs))
    if isinstance(result, torch.Tensor):
        raise UnsupportedError(
            f"{getattr(func, '__name__', func)} of a traced tensor returns a tensor that was not computed here",
            location=user_location(),
            advice=("avoid it in the compiled function",),
        )
    return result


def _check_strides(recorder: Recorder, args: tuple[Any, ...]) -> None:
    """Raise SizeVariesError where the program reads strides that may differ for sizes 0 and 1."""
    sizes = None if recorder.defined_sizes is None else recorder.defined_sizes.sizes
    variable = variable_of(args[0]) if args and isinstance(args[0], torch.Tensor) else None
    if sizes is not None and sizes.general and variable is not None and varies_by_values(variable.proxy, sizes):
        raise SizeVariesError("the program reads strides, which depend on values", location=user_location())


def _lift_varying(recorder: Recorder, values: tuple[Any, ...]) -> None:
    """Lift tensors whose sizes are read to inputs of the trace, if the sizes may vary between calls."""
    inputs = recorder.inputs
    for value in values:
        if not isinstance(value, torch.Tensor) or recorder.tensors.find(value) is not None:
            continue
        if may_vary(value) and inputs.has_path(value):
            with recorder.suspension, DisableTorchFunction():
                inputs.lift(value)


def read_version(recorder: Recorder, func: Any, tensor: torch.Tensor) -> Any:
    """``tensor._version``: that of its fake, plus the version that its storage had before the program."""
    version = read_metadata(recorder, func, tensor)
    return version if recorder.tensors.find(tensor) is None else version + _version_before(recorder, tensor)


def _version_before(recorder: Recorder, tensor: torch.Tensor) -> int:
    """The version that the storage of an input, or of a view of one, had when the program began."""
    if is_traced(tensor) and not recorder.tensors.query(is_view, (tensor,), {}):
        return 0
    storage = recorder.tensors.proxy_of(tensor).storage
    for item in recorder.inputs:
        if isinstance(item.proxy, TensorProxy) and item.proxy.storage == storage:
            recorder.mode.observer.metadata_read(VERSION, [item.value])
            return int(version_of(item.value))
    return 0


def read_storage(recorder: Recorder, func: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Read the storage or the address of a tensor that the program does not use otherwise.

    Raises:
        UnsupportedError: it is a tensor of the program.
    """
    tensors = recorder.tensors
    if tensors.find(args[0]) is not None:
        if func is Tensor.untyped_storage and calling_module().startswith("torch.nested."):  # they read only its size
            return tensors.query(func, args, kwargs)
        name = getattr(func, "__self__", func).__name__
        raise UnsupportedError(
            f"Tensor.{name} of a tensor of the program: it has no storage while the program is recorded",
            location=user_location(),
            advice=("do this outside of the compiled function",),
        )
    values = (*args, *kwargs.values())
    in_program = any(isinstance(value, torch.Tensor) and tensors.find(value) is not None for value in values)
    if in_program or func is Tensor.__reduce_ex__:  # it returns the elements as well
        return recorder.call(func, args, kwargs)
    with no_dispatch():
        return func(*args, **kwargs)


def read_base(recorder: Recorder, original: Any, tensor: torch.Tensor) -> Any:
    """The base of a view: the program's tensor object, so that ``view._base is tensor`` holds as in eager.

    A new tensor object if the program no longer holds the base.

    Raises:
        UnsupportedError: the base is not a tensor of the program, and gradients are enabled.
    """
    with DisableTorchFunction():
        variable = variable_of(tensor)
        if variable is None:
            return view_base(tensor)
        base = view_base(recorder.tensors.fake(variable))
        if base is None:
            return None
        value = _object_with(recorder.tensors, base)
        if value is not None:
            return value
    origin = variable.base
    while origin is not None and origin.fake is not base:
        origin = origin.base
    if origin is not None:
        return recorder.tensors.traced(origin)
    if not torch.is_grad_enabled():  # with gradients, ops run on other tensors than the caller's
        return recorder.call(BASE, (tensor,), {})
    raise UnsupportedError(
        "_base of a view whose base is not a tensor of the program",
        location=user_location(),
        advice=("pass the base to the compiled function, and create the view inside of it",),
    )


def _object_with(tensors: Tensors, fake: torch.Tensor) -> torch.Tensor | None:
    """The program's tensor object whose fake is ``fake``; None if there is none."""
    return next((value for value, known in tensors.objects() if known.fake is fake), None)


def read_gradient(recorder: Recorder, original: Any, tensor: torch.Tensor) -> Any:
    """``tensor.grad``: an input of the trace where the program uses it; an op if the program may have changed it."""
    variable = recorder.tensors.find(tensor)
    if variable is not None and (is_traced(tensor) or _may_be_changed(recorder, variable)):
        with DisableTorchFunction():
            gradient = None if variable.fake is None else variable.fake.grad
            value = None if gradient is None else _object_with(recorder.tensors, gradient)
        return recorder.call(GRAD, (tensor,), {}) if value is None else value
    with DisableTorchFunction():
        return tensor.grad


def _may_be_changed(recorder: Recorder, variable: Variable) -> bool:
    """Whether the program ran a backward that reached the tensor, or assigned its gradient."""
    with DisableTorchFunction():
        return variable in recorder.tensors.other_gradients or (
            variable.fake is not None and variable.fake.grad is not None
        )


class TracedNode:
    """Represents a node of the autograd graph, which each run creates."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise _refused(f"grad_fn.{name}")


def read_node(recorder: Recorder, original: Any, tensor: torch.Tensor) -> TracedNode | None:
    """The value of ``tensor.grad_fn`` while the program is recorded.

    Raises:
        UnsupportedError: a function of `torch.autograd.graph` inspects it.
    """
    with DisableTorchFunction():
        variable = recorder.tensors.find(tensor)
        node = tensor.grad_fn if variable is None else recorder.tensors.fake(variable).grad_fn
    if torch.autograd.graph.__name__ in library_callers():
        raise _refused(torch.autograd.graph.__name__)
    return None if node is None else TracedNode()


def _refused(attribute: str) -> UnsupportedError:
    return UnsupportedError(
        f"{attribute}: the autograd graph of a tensor of the program does not exist while the program is recorded",
        location=user_location(),
        advice=(
            "for hooks, use Tensor.register_hook; of modules, register_full_backward_hook",
            "inspect the graph outside of the compiled function",
        ),
    )


@calls_program
def set_source(recorder: Recorder, original: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``tensor.set_(source)``: like an assignment to ``data``. Other forms, and tensors with gradients, are refused."""
    source = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(source, torch.Tensor) or tensor.requires_grad or source.requires_grad:
        return original(tensor, *args, **kwargs)
    tensor.data = source
    return tensor


def reduce(recorder: Recorder, original: Any, tensor: torch.Tensor, protocol: Any) -> Any:
    """``tensor.__reduce_ex__(protocol)``: for `copy.copy`, how a tensor that shares the storage is created."""
    if type(tensor) is not torch.Tensor or calling_module() != copy.__name__:
        return original(tensor, protocol)
    return _shallow_copy, (tensor,)


def _shallow_copy(tensor: torch.Tensor) -> torch.Tensor:
    """What `copy.copy` returns: a leaf of the autograd graph."""
    copied = tensor.detach().requires_grad_(tensor.requires_grad)
    vars(copied).update(vars(tensor))
    return copied


@calls_program
def deepcopy(recorder: Recorder, original: Any, tensor: torch.Tensor, memo: dict[Any, Any]) -> Any:
    """``tensor.__deepcopy__(memo)``: a leaf of the autograd graph, with a new storage.

    Raises:
        RuntimeError: the tensor is not a leaf (PyTorch's message).
        UnsupportedError: the copy would share storage with another copy, or its storage would exceed the tensor.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not recorder.tensors.query(_IS_LEAF, (tensor,), {}):
        recorder.tensors.query(torch.Tensor.__deepcopy__, (tensor, memo), {})  # raises
    proxy = recorder.tensors.proxy_of(tensor)
    reason = _reason_against_clone(recorder, tensor, memo)
    if reason:
        raise UnsupportedError(
            f"deepcopy of {proxy.name}, {reason}",
            location=user_location(),
            advice=("write tensor.detach().clone()", "copy it outside of the compiled function"),
        )
    with torch.no_grad():
        copied = recorder.call(torch.clone, (recorder.call(torch.Tensor.detach, (tensor,), {}),), {})
    if proxy.requires_grad:
        copied = recorder.call(torch.Tensor.requires_grad_, (copied,), {})
    vars(copied).update(copy.deepcopy(vars(tensor), memo))
    memo[id(tensor)] = memo[_key(proxy.storage)] = copied
    return copied


def _reason_against_clone(recorder: Recorder, tensor: torch.Tensor, memo: dict[Any, Any]) -> str:
    """The reason why a copy is more than a clone; empty if it is only a clone."""
    proxy = recorder.tensors.proxy_of(tensor)
    if type(tensor) is not torch.Tensor:
        return f"which is of the class {type(tensor).__qualname__}"
    if _key(proxy.storage) in memo:
        return "which shares storage with another tensor that is copied"
    if read_gradient(recorder, GRAD, tensor) is not None:
        return "which has a gradient"
    if not is_plain_content(vars(tensor)):
        return "which has attributes that are not plain values"
    if proxy.layout is not torch.strided or proxy.device.type == "meta":
        return ""
    with DisableTorchFunction(), recorder.tensors.fake_mode.observing():
        fake: Any = recorder.tensors.fake(recorder.tensors.variable(tensor))
        inspected = fake if is_traced(tensor) else tensor
        whole = inspected.untyped_storage().nbytes() == inspected.numel() * inspected.element_size()
        same = torch.empty_like(fake).stride() == fake.stride()
        if not (whole and same) or fake.is_conj() or fake.is_neg():
            return "which does not cover its storage densely, or is a lazy conjugate or negative"
    return ""


def _key(storage: int) -> tuple[str, int]:
    """The key of the copy of a storage in the memo dictionary."""
    return "storage", storage

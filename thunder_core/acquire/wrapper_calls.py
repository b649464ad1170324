"""Calls with wrapper subclasses, tensors that hold tensors: their Python runs, and lines are on the inner tensors.

PyTorch itself takes such a call apart, as in eager: autograd's level first, then ``__torch_dispatch__`` of the class,
with operators of ATen. What that calls becomes lines. Autograd does not look below that level, so that these lines are
recorded without gradients; `thunder_core.acquire.wrapper_gradients` has the derivatives of such calls.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import MethodWrapperType
from typing import Any, Final

import torch

from thunder_core.acquire.autograd_reads import BASE, GRAD_FN
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.subclasses import wrappers
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.acquire.wrapper_gradients import call_with_gradients, requires_grad
from thunder_core.acquire.wrapper_parts import check_protocol, refuse_wrapper
from thunder_core.errors import SizeVariesError
from thunder_core.guards.observer import Observer
from thunder_core.guards.wrapper_guard import NotComparableError
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    FakeTensor,
    is_functional_tensor,
    peek_interpreter_stack,
)
from thunder_core.symbols.opaque import ASKS_AUTOGRAD, CHANGES_AUTOGRAD
from thunder_core.symbols.registry import registry
from thunder_core.tracing.user_frames import user_location

Tensor: Any = torch.Tensor

_NOT_DISPATCHED: Final = (
    CHANGES_AUTOGRAD
    | ASKS_AUTOGRAD
    | {Tensor.__deepcopy__, Tensor.__reduce_ex__, Tensor.apply_, Tensor.map_, Tensor.map2_, Tensor.__repr__}
)
"""Calls that change a tensor, or read it, without an operator that ``__torch_dispatch__`` would see."""

_OF_HISTORY: Final = frozenset({Tensor.is_leaf.__get__, GRAD_FN, BASE})


def call(
    recorder: Recorder,
    observer: Observer,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    found: list[torch.Tensor],
) -> Any:
    """A call of the program with the wrappers ``found`` among its arguments; runs what their classes make of it.

    ``found`` is empty for an autograd.Function that makes a wrapper.

    Raises:
        UnsupportedError: a wrapper cannot be guarded or rebuilt, or the call does what lines cannot do.
    """
    if recorder.inputs.input_sizes is not None:
        raise SizeVariesError("the program uses tensor subclasses", location=user_location())
    for tensor in found:
        _meet(recorder, observer, tensor)
        if _is_dispatched_in_c(type(tensor)):
            observer.used_dtensor(type(tensor))
    kind, name = type(found[0]) if found else Tensor, getattr(func, "__name__", str(func))
    if peek_interpreter_stack() is not None:
        raise refuse_wrapper(kind, f"{name} is called with a tensor under a transformation of torch.func")
    is_setter = type(func) is MethodWrapperType and func.__name__ != "__get__"
    if is_setter or func in _NOT_DISPATCHED:
        raise refuse_wrapper(kind, f"{name} changes or reads a tensor without calling an operator")
    if func in _OF_HISTORY and any(id(each) not in recorder.wrappers and each.requires_grad for each in found):
        raise refuse_wrapper(kind, f"{name} asks for the place of a computed tensor in the autograd graph")
    if registry.is_metadata(func):
        observer.asked(func, [tensor for tensor in found if id(tensor) in recorder.wrappers])
    elif torch.is_grad_enabled() and any(requires_grad(recorder, leaf) for leaf in _tensors((args, kwargs))):
        if recorder.attempt.graph:
            raise refuse_wrapper(kind, f"{name} is called in a program that itself computes gradients")
        return call_with_gradients(recorder, observer, func, args, kwargs)
    return func(*args, **kwargs)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in iterate_leaves(values) if isinstance(leaf, torch.Tensor)]


def dispatch(
    recorder: Recorder, func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """What the classes of the arguments make of an operator: the first of ``kinds`` that does not decline."""
    if torch.Tag.inplace_view in func.tags:
        raise refuse_wrapper(kinds[0], f"{func} changes the shape of a tensor in place")
    if torch.Tag.data_dependent_output in func.tags:
        raise refuse_wrapper(kinds[0], f"{func} gives Python a value of a tensor", "read that of an inner tensor")
    if any(map(_is_dispatched_in_c, kinds)):
        return NotImplemented
    with torch.no_grad(), recorder.tensors.fake_mode, recorder.mode:
        for kind in kinds:
            result = kind.__torch_dispatch__(func, kinds, args, kwargs)  # type: ignore[attr-defined]
            if result is not NotImplemented:
                return result
    raise TypeError(f"no implementation found for {func} on types that implement __torch_dispatch__: {list(kinds)}")


def _is_dispatched_in_c(kind: type) -> bool:
    """Whether PyTorch has code in C++ for what the class makes of operators, which goes on where a mode declines."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and kind is module.DTensor


def ask_metadata(recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The interception of functions of wrapper classes that compute with fake tensors to know metadata."""
    with recorder.suspension, recorder.tensors.fake_mode.observing(), DisableTorchFunction():
        return original(*args, **kwargs)


def _meet(recorder: Recorder, observer: Observer, tensor: torch.Tensor) -> None:
    """Make the inner tensors of a wrapper that existed before the program inputs of its trace."""
    if id(tensor) in recorder.wrappers:
        return
    if isinstance(tensor, FakeTensor) or is_functional_tensor(tensor):
        raise refuse_wrapper(type(tensor), "a tensor of PyTorch's own tracers cannot be used in a compiled function")
    source = observer.source_of(tensor)
    if source is None:  # the program makes it, of tensors that it has
        return
    described = source.describe()
    check_protocol(tensor, described)
    try:
        inner = observer.met_wrapper(tensor, source, is_traced)
    except NotComparableError as error:
        raise refuse_wrapper(
            type(tensor),
            f"the context of {described} has {error}, which cannot be compared with that of another call",
            "return plain values, tuples of them, or hashable objects that define __eq__ from __tensor_flatten__",
        ) from error
    recorder.wrappers[id(tensor)] = tensor
    for value in inner:
        if wrappers((value,)):
            _meet(recorder, observer, value)
        else:
            with recorder.suspension:
                recorder.inputs.lift(value)

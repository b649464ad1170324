"""Calls with wrapper subclasses, tensors that hold other tensors: recorded as operations on the inner tensors.

PyTorch itself decomposes such a call, as in eager: the autograd keys first, then ``__torch_dispatch__`` of the class,
with ATen operators. The operators that this method calls are recorded. Autograd does not differentiate below that
level, so these operations are recorded without gradients; `thunder_plugin_subclasses.differentiable_calls` has the
derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodWrapperType
from typing import Any, Final

import torch

from thunder_core.checks.source import AttributeSource, Source
from thunder_core.errors import SizeVariesError
from thunder_core.ir.symbol import Tag
from thunder_core.ir.tree import tensors_in
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    FakeTensor,
    is_functional_tensor,
    peek_interpreter_stack,
)
from thunder_core.symbols.registry import registry
from thunder_core.tracing.frames import user_location
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.subclasses import wrappers
from thunder_frontend.record.tensor_state import BASE, GRAD_FN
from thunder_frontend.record.traced_tensor import is_traced
from thunder_plugin_subclasses.differentiable_calls import call_with_gradients, requires_grad
from thunder_plugin_subclasses.guards import NotComparableError, WrapperGuard
from thunder_plugin_subclasses.parts import check_protocol, flattened, is_dispatched_in_c, not_recorded
from thunder_plugin_subclasses.recording import Recording

Tensor: Any = torch.Tensor

_OF_AUTOGRAD: Final = frozenset({Tag.CHANGES_AUTOGRAD, Tag.RUNS_AUTOGRAD})
_NOT_DISPATCHED: Final = frozenset(
    {Tensor.__deepcopy__, Tensor.__reduce_ex__, Tensor.apply_, Tensor.map_, Tensor.map2_, Tensor.__repr__}
)
"""Functions that, like those of autograd, change or read a tensor without calling an operator."""

_OF_HISTORY: Final = frozenset({Tensor.is_leaf.__get__, GRAD_FN, BASE})


def call(
    recording: Recording,
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    given: list[torch.Tensor],
) -> Any:
    """The result of a call of the program, from running the Python methods of the wrapper classes.

    Args:
        given: the wrappers among the arguments; empty for an autograd.Function that creates a wrapper.

    Raises:
        UnsupportedError, RunEagerly: a wrapper cannot be guarded or rebuilt, or the call cannot be recorded.
    """
    if recording.recorder.inputs.input_sizes is not None:
        raise SizeVariesError("the program uses tensor subclasses", location=user_location())
    for tensor in given:
        _lift(recording, tensor)
        if is_dispatched_in_c(type(tensor)):
            recording.used_dtensor(type(tensor))
    kind, name = type(given[0]) if given else Tensor, getattr(func, "__name__", str(func))
    if peek_interpreter_stack() is not None:
        raise not_recorded(kind, f"{name} is called with a tensor under a transformation of torch.func")
    is_setter = type(func) is MethodWrapperType and func.__name__ != "__get__"
    if is_setter or func in _NOT_DISPATCHED or registry.symbol_of(func).tags & _OF_AUTOGRAD:
        raise not_recorded(kind, f"{name} changes or reads a tensor without calling an operator")
    if func in _OF_HISTORY and any(id(each) not in recording.existing and each.requires_grad for each in given):
        raise not_recorded(kind, f"{name} reads the position of a computed tensor in the autograd graph")
    if registry.is_metadata(func):
        recording.observer.metadata_read(func, [tensor for tensor in given if id(tensor) in recording.existing])
    elif torch.is_grad_enabled() and any(requires_grad(recording, leaf) for leaf in tensors_in((args, kwargs))):
        if recording.recorder.attempt.graph:
            raise not_recorded(kind, f"{name} is called in a program that itself computes gradients")
        return call_with_gradients(recording, func, args, kwargs)
    return func(*args, **kwargs)


def dispatch(
    recording: Recording, func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of an operator by the first of the classes ``kinds`` that does not return NotImplemented."""
    if torch.Tag.inplace_view in func.tags:
        raise not_recorded(kinds[0], f"{func} changes the shape of a tensor in place")
    if torch.Tag.data_dependent_output in func.tags:
        raise not_recorded(
            kinds[0], f"{func} returns a value of a tensor to Python", "read the value of an inner tensor"
        )
    if any(map(is_dispatched_in_c, kinds)):
        return NotImplemented
    with torch.no_grad(), recording.recorder.tensors.fake_mode, recording.recorder.mode:
        for kind in kinds:
            result = kind.__torch_dispatch__(func, kinds, args, kwargs)  # type: ignore[attr-defined]
            if result is not NotImplemented:
                return result
    raise TypeError(f"no implementation found for {func} on types that implement __torch_dispatch__: {list(kinds)}")


def ask_metadata(recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The interception of functions of wrapper classes that infer metadata on fake tensors."""
    with recorder.suspension, recorder.tensors.fake_mode.observing(), DisableTorchFunction():
        return original(*args, **kwargs)


def _lift(recording: Recording, tensor: torch.Tensor) -> None:
    """Make the inner tensors of a wrapper that existed before the program inputs of the trace."""
    if id(tensor) in recording.existing:
        return
    if isinstance(tensor, FakeTensor) or is_functional_tensor(tensor):
        raise not_recorded(type(tensor), "a tensor of PyTorch's own tracers cannot be used in a compiled function")
    source = recording.observer.source_of(tensor)
    if source is None:  # the program creates it
        return
    described = source.describe()
    check_protocol(tensor, described)
    try:
        inner = _guard(recording, tensor, source)
    except NotComparableError as error:
        raise not_recorded(
            type(tensor),
            f"the context of {described} has {error}, which cannot be compared with that of another call",
            "return plain values, tuples of them, or hashable objects that define __eq__ from __tensor_flatten__",
        ) from error
    recording.existing[id(tensor)] = tensor
    for value in inner:
        if wrappers((value,)):
            _lift(recording, value)
        else:
            with recording.recorder.suspension:
                recording.recorder.inputs.lift(value)


def _guard(recording: Recording, wrapper: torch.Tensor, source: Source) -> list[torch.Tensor]:
    """Guard a wrapper that the program uses. Returns its inner tensors, which have paths from here on.

    Raises:
        NotComparableError: its context cannot be compared between calls.
    """
    observer = recording.observer
    observer.visit_tensor(wrapper, source)
    observer.add_guard(WrapperGuard.of(source, wrapper))
    parts = flattened(wrapper)[0].items()
    inner = {name: part for name, part in parts if isinstance(part, torch.Tensor) and not is_traced(part)}
    for name, part in inner.items():
        observer.visit_tensor(part, AttributeSource(source, name))
    return list(inner.values())

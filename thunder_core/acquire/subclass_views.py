"""Traced tensors of the user's classes: another object, of another class, in the storage of a tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.subclasses import has_torch_dispatch, refuse_dispatch
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    is_functorch_wrapped_tensor,
    peek_interpreter_stack,
)
from thunder_core.tracing.user_frames import user_location


def as_subclass(recorder: Recorder, original: Callable[..., Any], tensor: torch.Tensor, cls: type) -> Any:
    """The interception of ``tensor.as_subclass(cls)``: another tensor in the storage of ``tensor``."""
    if recorder.suspension.active or peek_interpreter_stack() is not None:
        if cls is torch.Tensor or not is_functorch_wrapped_tensor(tensor):
            return original(tensor, cls)
        raise UnsupportedError(
            f"under a transformation of torch.func, a tensor of the program becomes one of {cls.__qualname__}",
            location=user_location(),
            advice=("give the transformed function a plain tensor: tensor.as_subclass(torch.Tensor)",),
        )
    with DisableTorchFunction():
        alias = recorder.call(torch.ops.aten.alias.default, (tensor,), {})
    return classed(recorder, alias, cls)


def make_subclass(
    recorder: Recorder,
    original: Callable[..., Any],
    cls: type,
    data: torch.Tensor,
    require_grad: bool = False,
    **options: Any,
) -> Any:
    """The interception of ``torch.Tensor._make_subclass``, which constructors of parameters and of subclasses call."""
    if has_torch_dispatch(cls):  # as fake tensors, Thunder's among them
        return original(cls, data, require_grad, **options)
    with DisableTorchFunction():
        detached = recorder.call(torch.Tensor.detach, (data,), {})
        if require_grad:
            recorder.call(torch.Tensor.requires_grad_, (detached,), {})
    return classed(recorder, detached, cls)


def classed(recorder: Recorder, tensor: torch.Tensor, kind: type) -> torch.Tensor:
    """A new traced tensor as one of a class of the user's. Raises UnsupportedError where that cannot be recorded."""
    if has_torch_dispatch(kind):
        refuse_dispatch(kind, "a tensor of the program")
    if kind is torch.Tensor:
        return tensor
    return recorder.tensors.traced(recorder.tensors.variable(tensor), kind)

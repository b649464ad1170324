"""Traced tensors of the user's classes: another object, of another class, in the storage of a tensor."""

from __future__ import annotations

from typing import Final

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.subclasses import has_torch_dispatch, refuse_dispatch
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.pytorch_internals import make_subclass as make_tensor_of

AS_SUBCLASS: Final = torch.Tensor.as_subclass
MAKE_SUBCLASS: Final = make_tensor_of


def as_subclass(recorder: Recorder, tensor: torch.Tensor, kind: type) -> torch.Tensor:
    """``tensor.as_subclass(kind)``: another tensor in the storage of ``tensor``."""
    with DisableTorchFunction():
        alias = recorder.call(torch.ops.aten.alias.default, (tensor,), {})
    return classed(recorder, alias, kind)


def make_subclass(recorder: Recorder, kind: type, tensor: torch.Tensor, requires_grad: bool) -> torch.Tensor:
    """``torch.Tensor._make_subclass``, which constructors of parameters and of subclasses call."""
    with DisableTorchFunction():
        detached = recorder.call(torch.Tensor.detach, (tensor,), {})
        if requires_grad:
            recorder.call(torch.Tensor.requires_grad_, (detached,), {})
    return classed(recorder, detached, kind)


def classed(recorder: Recorder, tensor: torch.Tensor, kind: type) -> torch.Tensor:
    """A new traced tensor as one of a class of the user's. Raises UnsupportedError where that cannot be recorded."""
    if has_torch_dispatch(kind):
        refuse_dispatch(kind, "a tensor of the program")
    if kind is torch.Tensor:
        return tensor
    return recorder.traced(recorder.variable(tensor), kind)

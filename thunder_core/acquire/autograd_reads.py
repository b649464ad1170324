"""Reads of what autograd holds of a tensor: ``_base``, ``grad`` and ``grad_fn``."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.tensors import Tensors
from thunder_core.acquire.traced_tensor import is_traced, variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import DisableTorchFunction, view_base, view_base_getter
from thunder_core.tracing.user_frames import library_callers, user_location

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
BASE = view_base_getter
GRAD = _Tensor.grad.__get__
GRAD_FN = _Tensor.grad_fn.__get__


def read_base(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """The object itself, so that ``view._base is tensor`` answers as in eager; a new one if nobody holds it any more.

    Raises:
        UnsupportedError: it is none of the program's tensors, and autograd records.
    """
    with DisableTorchFunction():
        variable = variable_of(tensor)
        if variable is None:
            return view_base(tensor)
        base = view_base(recorder.tensors.fake(variable))
        if base is None:
            return None
        value = object_with(recorder.tensors, base)
        if value is not None:
            return value
    origin = variable.base
    while origin is not None and origin.fake is not base:
        origin = origin.base
    if origin is not None:
        return recorder.tensors.traced(origin)
    if not torch.is_grad_enabled():  # else lines run on other tensors than the caller's
        return recorder.call(BASE, (tensor,), {})
    raise UnsupportedError(
        "_base of a view of a tensor that is not among those of the program",
        location=user_location(),
        advice=("make the view inside of the compiled function, of a tensor that it is given",),
    )


def object_with(tensors: Tensors, fake: torch.Tensor) -> torch.Tensor | None:
    """The tensor object of the program that has this fake."""
    return next((value for value, known in tensors.objects() if known.fake is fake), None)


def read_gradient(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """The gradient, which becomes an input where the program uses it; a line if it is not known while recording."""
    variable = recorder.tensors.find(tensor)
    if variable is not None and (is_traced(tensor) or _may_be_changed(recorder, variable)):
        with DisableTorchFunction():
            gradient = None if variable.fake is None else variable.fake.grad
            value = None if gradient is None else object_with(recorder.tensors, gradient)
        return recorder.call(GRAD, (tensor,), {}) if value is None else value
    with DisableTorchFunction():
        return tensor.grad


def _may_be_changed(recorder: Recorder, variable: Variable) -> bool:
    """Whether the program ran a backward that reached the tensor, or gave it another gradient."""
    with DisableTorchFunction():
        return variable in recorder.tensors.other_gradients or (
            variable.fake is not None and variable.fake.grad is not None
        )


class TracedNode:
    """Represents a node of the autograd graph, which each run creates anew."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise _refused(f"grad_fn.{name}")


def read_node(recorder: Recorder, tensor: torch.Tensor) -> TracedNode | None:
    """What ``tensor.grad_fn`` is while the program is recorded.

    Raises:
        UnsupportedError: a function of `torch.autograd.graph` looks at it.
    """
    with DisableTorchFunction():
        variable = recorder.tensors.find(tensor)
        node = tensor.grad_fn if variable is None else recorder.tensors.fake(variable).grad_fn
    if torch.autograd.graph.__name__ in library_callers():
        raise _refused(torch.autograd.graph.__name__)
    return None if node is None else TracedNode()


def _refused(what: str) -> UnsupportedError:
    return UnsupportedError(
        f"{what}: the autograd graph of a tensor of the program is not there while the program is recorded",
        location=user_location(),
        advice=(
            "for hooks, use Tensor.register_hook; of modules, register_full_backward_hook",
            "look at the graph outside of the compiled function",
        ),
    )

"""Reads of ``grad_fn``: whether a tensor has a history is known, the autograd graph itself is not there yet."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.user_frames import library_callers, user_location

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
GRAD_FN = _Tensor.grad_fn.__get__


class TracedNode:
    """Stands for a node of the autograd graph of each run."""

    __slots__ = ()

    def __getattr__(self, name: str) -> NoReturn:
        raise _refused(f"grad_fn.{name}")


def read_node(recorder: Recorder, tensor: torch.Tensor) -> TracedNode | None:
    """What ``tensor.grad_fn`` is while the program is recorded.

    Raises:
        UnsupportedError: a function of `torch.autograd.graph` looks at it.
    """
    with DisableTorchFunction():
        variable = variable_of(tensor) or recorder.inputs.find(tensor)
        node = tensor.grad_fn if variable is None else recorder.fake(variable).grad_fn
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

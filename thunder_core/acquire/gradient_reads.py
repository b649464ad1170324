"""Reads of ``grad`` of tensors that existed before the program: what they have, unless the program changed it."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.acquire.variable import Variable
from thunder_core.ir.symbol import Tag
from thunder_core.pytorch_internals import DisableTorchFunction

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
GRAD = _Tensor.grad.__get__
_CHANGING = frozenset({Tag.AUTOGRAD, Tag.LOCAL})
"""Lines that may give a tensor another gradient: autograd's, and functions of the user's."""


def read_gradient(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """The gradient itself, which becomes an input where the program uses it; a line where it is not known yet."""
    if is_traced(tensor):
        return recorder.call(GRAD, (tensor,), {})
    variable = recorder.inputs.find(tensor)
    if variable is not None and _may_be_changed(recorder, tensor, variable):
        return recorder.call(GRAD, (tensor,), {})
    with DisableTorchFunction():
        return tensor.grad


def _may_be_changed(recorder: Recorder, tensor: torch.Tensor, variable: Variable) -> bool:
    """Whether the program ran a backward that reached the tensor, or gave it another gradient."""
    with DisableTorchFunction():
        if variable.fake is not None and variable.fake.grad is not None:
            return True
    written = variable.proxy is not recorder.inputs.object_proxy(tensor)
    return written and any(not line.symbol.tags.isdisjoint(_CHANGING) for line in recorder.lines)

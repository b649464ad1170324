"""Reads of ``grad`` of tensors that existed before the program: what they have, unless the program changed it."""

from __future__ import annotations

from typing import Any

import torch

from thunder_core.acquire.base_reads import object_with
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import is_traced, variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.pytorch_internals import DisableTorchFunction

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
GRAD = _Tensor.grad.__get__


def read_gradient(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """The gradient itself, which becomes an input where the program uses it; a line where it is not known yet."""
    variable = variable_of(tensor) or recorder.inputs.find(tensor)
    if variable is not None and (is_traced(tensor) or _may_be_changed(recorder, variable)):
        with DisableTorchFunction():
            gradient = None if variable.fake is None else variable.fake.grad
            value = None if gradient is None else object_with(recorder, gradient)
        return recorder.call(GRAD, (tensor,), {}) if value is None else value
    with DisableTorchFunction():
        return tensor.grad


def _may_be_changed(recorder: Recorder, variable: Variable) -> bool:
    """Whether the program ran a backward that reached the tensor, or gave it another gradient."""
    with DisableTorchFunction():
        return variable in recorder.other_gradients or (variable.fake is not None and variable.fake.grad is not None)

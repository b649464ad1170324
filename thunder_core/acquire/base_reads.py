"""Reads of ``_base``: the tensor object of the program of which a traced tensor is a view."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import variable_of
from thunder_core.acquire.variable import Variable
from thunder_core.errors import UnsupportedError
from thunder_core.pytorch_internals import DisableTorchFunction, view_base, view_base_getter
from thunder_core.tracing.user_frames import user_location

BASE = view_base_getter


def read_base(recorder: Recorder, tensor: torch.Tensor) -> Any:
    """The object itself, so that ``view._base is tensor`` answers as in eager; a new one if nobody holds it any more.

    Raises:
        UnsupportedError: it is none of the program's tensors, and autograd records.
    """
    with DisableTorchFunction():
        variable = variable_of(tensor)
        if variable is None:
            return view_base(tensor)
        base = view_base(recorder.fake(variable))
        if base is None:
            return None
        value = object_with(recorder, base)
        if value is not None:
            return value
    origin = variable.base
    while origin is not None and origin.fake is not base:
        origin = origin.base
    if origin is not None:
        return recorder.traced(origin)
    if not torch.is_grad_enabled():  # else lines run on other tensors than the caller's
        return recorder.call(BASE, (tensor,), {})
    raise UnsupportedError(
        "_base of a view of a tensor that is not among those of the program",
        location=user_location(),
        advice=("make the view inside of the compiled function, of a tensor that it is given",),
    )


def object_with(recorder: Recorder, fake: torch.Tensor) -> torch.Tensor | None:
    """The tensor object of the program that has this fake."""
    return next((value for value, known in _objects(recorder) if known.fake is fake), None)


def _objects(recorder: Recorder) -> Iterator[tuple[torch.Tensor, Variable]]:
    """The tensor objects that the program can reach."""
    for value in recorder.inputs.objects:
        variable = recorder.inputs.find(value) if isinstance(value, torch.Tensor) else None
        if variable is not None:
            yield value, variable
    for reference in recorder.made:
        tensor = reference()
        if tensor is not None:
            yield tensor, recorder.variable(tensor)

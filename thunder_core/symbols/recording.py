"""Python functions whose calls are one line of a trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from torch.overrides import TorchFunctionMode, handle_torch_function

from thunder_core.pytorch_internals import get_current_function_mode, is_torch_function_mode_enabled

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class RecordingMode(TorchFunctionMode):
    """A torch-function mode that writes down the calls that it sees, those of `recorded` functions among them."""


def recorded(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Make each call of a function one line of the traces that it is recorded in, as if PyTorch had it.

    ::

        @thunder_core.symbols.recorded
        def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor: ...

    Executors can claim the function, whole. Where nobody does, it is called as it is. Its parts, its gradient and the
    types of its results come from running it on tensors without data, so it must consist of differentiable torch
    functions and depend on nothing but its arguments: what else it reads is not guarded. It may write to them. It
    should be at the top level of a module, where a printed program finds it.

    Outside of recordings a call is a plain call. Under a mode that the user enters inside of the program, such as
    ``with torch.device("cuda")``, its calls are recorded one by one, since that mode may mean each of them.
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if is_recording():
            return handle_torch_function(call, (), *args, **kwargs)
        return function(*args, **kwargs)

    return call


def is_recording() -> bool:
    """Whether the innermost torch-function mode records calls of `recorded` functions as one line."""
    if not is_torch_function_mode_enabled():
        return False
    return isinstance(get_current_function_mode(), RecordingMode)

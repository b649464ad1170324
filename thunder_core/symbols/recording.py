"""The decorator `recorded`: calls of a Python function become single ops of a trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import ParamSpec, TypeVar

from torch.overrides import TorchFunctionMode, handle_torch_function

from thunder_core.pytorch_internals import get_current_function_mode, is_torch_function_mode_enabled

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class RecordingMode(TorchFunctionMode):
    """A torch-function mode that records calls, including those of `recorded` functions as single ops."""


def recorded(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Record each call of a function as a single op, like a function of PyTorch.

    ::

        @thunder_core.symbols.recorded
        def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor: ...

    Executors can claim the function as a whole. If none does, the function itself is called. Its lowered form, its
    gradient and the metadata of its results come from running it on fake tensors, so it must consist of differentiable
    torch functions and depend on its arguments alone: anything else that it reads is not guarded. It may write to its
    arguments. It should be defined at the top level of a module, so that printed programs can import it.

    Outside of recordings a call is a plain call. Under a mode that the user enters inside of the program, such as
    ``with torch.device("cuda")``, its calls are recorded one by one, since that mode may mean each of them.
    """

    @wraps(function)
    def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if is_recording():
            return handle_torch_function(call, (), *args, **kwargs)
        return function(*args, **kwargs)

    return call


def is_operation(function: FunctionType) -> bool:
    """Whether calls of a Python function without a row can be ops: PyTorch's, or one that dispatches, as `recorded`."""
    of_pytorch = (function.__module__ or "").partition(".")[0] == "torch"
    return of_pytorch or handle_torch_function.__name__ in function.__code__.co_names


def is_recording() -> bool:
    """Whether the innermost torch-function mode records calls of `recorded` functions as one line."""
    if not is_torch_function_mode_enabled():
        return False
    return isinstance(get_current_function_mode(), RecordingMode)

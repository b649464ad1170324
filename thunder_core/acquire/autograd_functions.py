"""``autograd.Function``: a call is recorded as one symbol, never flattened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.checkpoint

from thunder_core.acquire import data_dependence, subclasses
from thunder_core.acquire.checkpoints import checkpoint
from thunder_core.acquire.interception import copy_of
from thunder_core.acquire.recorder import Recorder
from thunder_core.errors import UnsupportedError
from thunder_core.guards.code_kinds import CodeKind, kind_of_class
from thunder_core.ir.symbol import Symbol
from thunder_core.pytorch_internals import DisableTorchFunction, EnableTorchFunction
from thunder_core.symbols.opaque import callable_symbol
from thunder_core.tracing.outcome import GivesWrapperError
from thunder_core.tracing.user_frames import user_location

# The descriptor of `torch.autograd.Function.apply`: a class method of Python up to PyTorch 2.13, whose code is replaced
# while a program is recorded, one of C since 2.14.
_HELD = vars(torch.autograd.Function)["apply"]
_APPLY = copy_of(_HELD)


def apply_of(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """PyTorch's ``cls.apply``, also while `torch.autograd.Function.apply` is replaced."""
    bound: Callable[..., Any] = _APPLY.__get__(None, cls)
    return bound


def is_apply(function: Any) -> bool:
    """Whether ``function`` is the ``apply`` of an autograd.Function."""
    cls = getattr(function, "__self__", None)
    if not isinstance(cls, type) or not issubclass(cls, torch.autograd.Function):
        return False
    return bool(function == _HELD.__get__(None, cls))


@dataclass(frozen=True)
class Applied:
    """PyTorch's ``cls.apply``, while the program is recorded: what forward and backward call becomes lines."""

    recorder: Recorder
    cls: type[torch.autograd.Function]

    @property
    def __name__(self) -> str:
        return f"{self.cls.__qualname__}.apply"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer, self.recorder.applied = self.recorder.applied, self.cls
        try:
            return apply_of(_calling_torch_functions(self.cls))(*args, **kwargs)
        finally:
            self.recorder.applied = outer


def _calling_torch_functions(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """The function with a backward that calls ``__torch_function__`` of classes, as in eager.

    Derivatives are recorded where PyTorch calls none, as its own derivatives need none.
    """
    name = "backward" if cls.vjp is torch.autograd.Function.vjp else "vjp"
    derivative = getattr(cls, name)

    def backward(context: Any, *gradients: Any) -> Any:
        with EnableTorchFunction():
            return derivative(context, *gradients)

    return type(cls.__name__, (cls,), {name: staticmethod(backward), "__module__": cls.__module__})


def autograd_function(
    recorder: Recorder, cls: type[torch.autograd.Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record ``cls.apply(...)`` as one symbol; its forward and backward run as the user wrote them.

    With wrapper subclasses among its arguments, or as a result of a library's, it is an operator as others are.

    Raises:
        UnsupportedError: an argument is of a class with a ``__torch_function__``, which would act inside of both.
    """
    wrappers = subclasses.wrappers((*args, *kwargs.values()))
    if wrappers:
        return recorder.mode.call_with_wrappers(Applied(recorder, cls), args, kwargs, wrappers)
    subclasses.refuse_classes(
        (args, kwargs),
        f"an argument of {cls.__qualname__}.apply",
        lambda tensor: subclasses.is_handed_calls(type(tensor)),
    )
    symbol = callable_symbol(apply_of(cls), "Function_apply")
    if kind_of_class(cls) is not CodeKind.USER and _makes_wrapper(recorder, cls, symbol, args, kwargs):
        return recorder.mode.call_with_wrappers(Applied(recorder, cls), args, kwargs, [])
    with DisableTorchFunction():
        try:
            return recorder.call_symbol(symbol, args, kwargs)
        except GivesWrapperError as error:  # its forward ran, and would run once more
            raise UnsupportedError(
                f"{cls.__qualname__}.apply makes a {error}, a tensor that holds tensors, of plain ones",
                location=user_location(),
                advice=("make it in a function, outside of an autograd.Function", "or before the compiled function"),
            ) from None


def _makes_wrapper(
    recorder: Recorder,
    cls: type[torch.autograd.Function],
    symbol: Symbol,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> bool:
    """Whether a library's function makes wrapper subclasses of plain tensors: its first call is tried on fakes."""
    if cls not in recorder.makers:
        recorder.makers[cls] = False
        with DisableTorchFunction(), recorder.suspension:
            try:
                recorder.infer(symbol, args, kwargs, ())
            except GivesWrapperError:
                recorder.makers[cls] = True
            except data_dependence.EXCEPTIONS:
                pass  # the call itself raises it again, and asks the resolvers
    return recorder.makers[cls]


def apply(
    recorder: Recorder, original: Callable[..., Any], cls: type[torch.autograd.Function], /, *args: Any, **kwargs: Any
) -> Any:
    """The interception of ``cls.apply``."""
    if cls is torch.utils.checkpoint.CheckpointFunction:
        function, preserve, *operands = args
        return checkpoint(recorder, function, tuple(operands), {"use_reentrant": True, "preserve_rng_state": preserve})
    return autograd_function(recorder, cls, args, kwargs)


def refuse_context(recorder: Recorder, original: Callable[..., Any], context: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of contexts of autograd.Function: `apply` makes them while the recorder is busy."""
    if recorder.applied is not None:
        return original(context, *args, **kwargs)
    raise UnsupportedError(
        f"{type(context).__name__.removesuffix('Backward')}.apply is called by a function of C, under a name that "
        "is not known, and would run once, at compile time",
        location=user_location(),
        advice=("call it as YourFunction.apply(...)",),
    )

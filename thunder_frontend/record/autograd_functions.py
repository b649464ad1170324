"""``autograd.Function``: a call is recorded as one bound symbol, not as the calls inside its forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import BuiltinMethodType, MethodType
from typing import Any

import torch

from thunder_core.checks.plain import is_plain
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import DisableTorchFunction, EnableTorchFunction, backward_hooks_of
from thunder_core.symbols.opaque import callable_symbol
from thunder_core.tracing.frames import CodeKind, kind_of_class, user_location
from thunder_core.tracing.outcome import WrapperResultError
from thunder_frontend.record import data_dependence, subclasses
from thunder_frontend.record.backward_code import BackwardCode
from thunder_frontend.record.checkpoints import checkpoint
from thunder_frontend.record.interception import copy_of
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.traced_tensor import reachable, variable_of

# The descriptor of `torch.autograd.Function.apply`: a class method of Python up to PyTorch 2.13, whose code is replaced
# while a program is recorded, one of C since 2.14.
_HELD = vars(torch.autograd.Function)["apply"]
_APPLY = copy_of(_HELD)
_MOST_OBJECTS = 10_000


def apply_of(cls: type[torch.autograd.Function]) -> Callable[..., Any]:
    """PyTorch's ``cls.apply``, also while `torch.autograd.Function.apply` is replaced."""
    bound: Callable[..., Any] = _APPLY.__get__(None, cls)
    return bound


def is_apply(function: Any) -> bool:
    """Whether ``function`` is the ``apply`` of an autograd.Function."""
    # other objects may have a ``__getattr__`` of the user
    cls = function.__self__ if type(function) in (MethodType, BuiltinMethodType) else None
    if not isinstance(cls, type) or not issubclass(cls, torch.autograd.Function):
        return False
    return bool(function == _HELD.__get__(None, cls))


@dataclass(frozen=True)
class Applied:
    """PyTorch's ``cls.apply`` while the program is recorded: the calls of its forward and backward become ops.

    Attributes:
        prepare: returns the arguments to use in place of those of the call, and may record ops.
    """

    recorder: Recorder
    cls: type[torch.autograd.Function]
    prepare: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple

    @property
    def __name__(self) -> str:
        return f"{self.cls.__qualname__}.apply"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer, self.recorder.applied = self.recorder.applied, self.cls
        try:
            return apply_of(_calling_torch_functions(self.cls))(*self.prepare(args), **kwargs)
        finally:
            self.recorder.applied = outer


def _calling_torch_functions(cls: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """A subclass of ``cls`` whose backward calls ``__torch_function__`` of tensor subclasses, as in eager.

    Derivatives are recorded with ``__torch_function__`` disabled, as PyTorch's own derivatives do not need it.
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
    """Record ``cls.apply(...)`` as one bound symbol; its forward and backward run as the user wrote them.

    With wrapper subclasses among its arguments, or as the result of a library's function, it is recorded like any
    other operator.

    Raises:
        UnsupportedError: an argument is of a class with a ``__torch_function__``, which would also apply inside forward
            and backward.
    """
    if subclasses.wrappers((*args, *kwargs.values())):
        return autograd_function_calls(recorder, cls, args, kwargs)
    _check_classes(cls, args, kwargs)
    for name in ("forward", "setup_context") if recorder.mode is not None else ():  # `apply` calls them
        recorder.mode.observer.calls_method(cls, name)
    symbol = callable_symbol(apply_of(cls), "Function_apply")
    # a branch of the function by a float that varies becomes a guarded condition of the program
    symbol = replace(symbol, tags=symbol.tags | {Tag.TAKES_FLOATS})
    if kind_of_class(cls) is not CodeKind.USER and _creates_wrapper(recorder, cls, symbol, args, kwargs):
        return recorder.wrapper_calls.call(Applied(recorder, cls), args, kwargs, [])
    recorder.backward_code.append(BackwardCode.of_function(cls))
    with DisableTorchFunction():
        _check_held(recorder, cls, args, kwargs)
        try:
            return recorder.call_symbol(symbol, args, kwargs)
        except WrapperResultError as error:  # its forward has run, and must not run a second time
            raise UnsupportedError(
                f"{cls.__qualname__}.apply creates a {error}, a tensor that holds tensors, from plain tensors",
                location=user_location(),
                advice=("create it in a function, outside of an autograd.Function", "or before the compiled function"),
            ) from None


def autograd_function_calls(
    recorder: Recorder,
    cls: type[torch.autograd.Function],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    prepare: Callable[[tuple[Any, ...]], tuple[Any, ...]] = tuple,
) -> Any:
    """Record ``cls.apply(...)`` as the calls in its forward, with those in its backward as the derivative.

    Args:
        prepare: as for `Applied`.

    Raises:
        UnsupportedError: as for `autograd_function`; or no plugin records such calls.
    """
    wrappers = subclasses.wrappers((*args, *kwargs.values()))
    if not wrappers:
        _check_classes(cls, args, kwargs)
    return recorder.wrapper_calls.call(Applied(recorder, cls, prepare), args, kwargs, wrappers)


def _check_classes(cls: type[torch.autograd.Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    subclasses.refuse_classes(
        (args, kwargs),
        f"an argument of {cls.__qualname__}.apply",
        lambda tensor: subclasses.overrides_calls(type(tensor)),
    )


def _check_held(
    recorder: Recorder, cls: type[torch.autograd.Function], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Check that forward and backward find the tensors that objects among the arguments hold.

    Their op gets copies of tensors that the program computes, without history. A backward that runs autograd itself,
    as an ``adjoint`` does, needs the history.

    Raises:
        RunEagerly: an object holds a tensor with a history.
    """
    if not torch.is_grad_enabled():
        return
    for value in iterate_leaves((args, kwargs)):
        if isinstance(value, torch.Tensor) or is_plain(value):
            continue
        for held in reachable(value, _MOST_OBJECTS, torch.Tensor):
            if isinstance(held, torch.Tensor) and _has_history(held):
                name = getattr(value, "__name__", type(value).__qualname__)
                raise RunEagerly(
                    f"{name}, an argument of {cls.__qualname__}.apply, holds a tensor with a grad_fn or hooks"
                )


def _has_history(tensor: torch.Tensor) -> bool:
    """Whether an op gets a copy of the tensor: see `thunder_core.autodiff.derivatives.by_eager.record_graph`."""
    variable = variable_of(tensor)
    if variable is not None:
        return variable.proxy.requires_grad
    return tensor.requires_grad and (not tensor.is_leaf or bool(backward_hooks_of(tensor)))


def _creates_wrapper(
    recorder: Recorder,
    cls: type[torch.autograd.Function],
    symbol: Symbol,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> bool:
    """Whether a library's function creates wrapper subclasses from plain tensors: its first call is tried on fakes."""
    key = _creates_wrapper, cls
    if key not in recorder.notes:
        recorder.notes[key] = False
        with DisableTorchFunction(), recorder.suspension:
            try:
                recorder.infer(symbol, args, kwargs, ())
            except WrapperResultError:
                recorder.notes[key] = True
            except data_dependence.EXCEPTIONS:
                pass  # the call itself raises it again, and tries the resolvers
    return bool(recorder.notes[key])


def apply_checkpoint(
    recorder: Recorder,
    original: Callable[..., Any],
    cls: type[torch.autograd.Function],
    /,
    function: Callable[..., Any],
    preserve: bool,
    *operands: Any,
) -> Any:
    """The interception of `torch.utils.checkpoint.CheckpointFunction.apply`."""
    return checkpoint(recorder, function, operands, {"use_reentrant": True, "preserve_rng_state": preserve})


def refuse_context(recorder: Recorder, original: Callable[..., Any], context: Any, /, *args: Any, **kwargs: Any) -> Any:
    """The interception of contexts of autograd.Function, for those that the program creates without `apply`."""
    if recorder.applied is not None:
        return original(context, *args, **kwargs)
    raise UnsupportedError(
        f"{type(context).__name__.removesuffix('Backward')}.apply is called from C through an alias that cannot be "
        "recorded; it would run once, at compile time",
        location=user_location(),
        advice=("call it as YourFunction.apply(...)",),
    )

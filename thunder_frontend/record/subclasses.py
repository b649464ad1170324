"""Tensor subclasses: the calls of their ``__torch_function__`` are recorded; a ``__torch_dispatch__`` is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder_core.errors import UnsupportedError, advice_on_plugins
from thunder_core.ir.import_paths import module_of
from thunder_core.ir.tree import tensors_in
from thunder_core.pytorch_internals import (
    DisableTorchFunction,
    FakeTensor,
    disabled_torch_function_impl,
    is_functional_tensor,
    is_functorch_wrapped_tensor,
    peek_interpreter_stack,
)
from thunder_core.tracing.frames import calls_program, raising_location, user_location
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_tensor import is_traced

if TYPE_CHECKING:
    from thunder_frontend.record.recorder import Recorder

_DISABLED: Final = disabled_torch_function_impl
_BELOW: Final = torch.Tensor.__torch_dispatch__
SUBJECT: Final = "wrapper subclasses"
"""The subject of advice on absent plugins (`thunder_core.errors.advice_on_plugins`)."""
PLAIN_TENSORS: Final = (
    "give the compiled function plain tensors, as DTensor.to_local() and dequantize() return them",
    "or run the code that computes with such tensors outside of the compiled function",
)
"""Advice for programs that compute with wrapper subclasses."""
_NEVER: Final = frozenset(
    {torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), torch.Size, torch.dtype}
)


def has_torch_function(kind: type) -> bool:
    """Whether the class defines or inherits a ``__torch_function__`` other than that of `torch.Tensor`."""
    return kind is not torch.Tensor and getattr(kind, "__torch_function__", _DISABLED) is not _DISABLED


def has_torch_dispatch(kind: type) -> bool:
    """Whether the class replaces operators below autograd, as `DTensor` and quantized weights do.

    Classes that define ``__torch_function__`` and are not tensors have no ``__torch_dispatch__``.
    """
    return getattr(kind, "__torch_dispatch__", _BELOW) is not _BELOW


@cache
def overrides_calls(kind: type) -> bool:
    """Whether calls with tensors of this class are dispatched to the class: it has one of both methods."""
    return kind is not TracedNumber and has_torch_function(kind)


def wrappers(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors of classes with a ``__torch_dispatch__`` among the arguments of a call; fakes are the recorder's."""
    tensors: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        if kind in _NEVER:
            continue
        if kind is tuple or kind is list:
            tensors += wrappers(value)
        elif isinstance(value, torch.Tensor) and has_torch_dispatch(kind) and not isinstance(value, FakeTensor):
            tensors.append(value)
    return tensors


def is_computed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is computed by the program and of a user's class, which ops do not record."""
    return type(tensor) is not torch.Tensor and is_traced(tensor)


def refuse_classes(values: Any, described: str, refused: Callable[[torch.Tensor], bool]) -> None:
    """Refuse tensors in ``values`` for which ``refused`` returns True, because of their class.

    Raises:
        UnsupportedError: there is such a tensor.
    """
    for tensor in tensors_in(values):
        if refused(tensor):
            kind = type(tensor)
            raise UnsupportedError(
                f"{described} is of the class {module_of(kind)}.{kind.__qualname__}, which cannot be recorded",
                location=user_location(),
                advice=(
                    "give it a plain tensor: tensor.as_subclass(torch.Tensor)",
                    "or do this outside of the compiled function",
                ),
            )


def check_supported(tensor: torch.Tensor, described: str) -> None:
    """Refuse to compute with a tensor of a class that replaces operators below ``__torch_function__``.

    Raises:
        UnsupportedError: the class has a ``__torch_dispatch__``, or the tensor is a functional wrapper of C++.
    """
    if has_torch_dispatch(type(tensor)):
        raise wrapper_error(described, type(tensor))
    if is_functional_tensor(tensor):
        raise UnsupportedError(
            f"{described} is a functional tensor, a wrapper that PyTorch's own tracers create",
            location=user_location(),
            advice=("call the compiled function outside of such a tracer",),
        )


def dispatch(func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call by ``__torch_function__`` of the first of ``kinds`` that does not return NotImplemented.

    Runs under the recording mode: the calls of ``__torch_function__`` become ops.
    """
    for kind in kinds:
        result = kind.__torch_function__(func, kinds, args, kwargs)  # type: ignore[attr-defined]
        if result is not NotImplemented:
            return result
    name = getattr(func, "__name__", func)
    raise TypeError(f"no implementation found for {name} on types that implement __torch_function__: {list(kinds)}")


def explain(error: BaseException) -> None:
    """Raise an error with advice if ``error`` comes from the constructor of `torch.Tensor`, called by a subclass.

    Raises:
        UnsupportedError: ``error`` comes from that constructor, which is written in C.
    """
    if not isinstance(error, RuntimeError) or "Creating a new Tensor subclass" not in str(error):
        return
    raise UnsupportedError(
        f"a call of torch.Tensor.__new__ or __init__ with a tensor of the program cannot be recorded ({error})",
        location=raising_location(error),
        advice=("write tensor.as_subclass(Class) instead of Class(tensor)",),
    ) from error


def wrapper_error(described: str, kind: type) -> UnsupportedError:
    """The error about a tensor of the wrapper class ``kind``, where wrappers cannot be recorded."""
    return UnsupportedError(
        f"{described} is of the class {module_of(kind)}.{kind.__qualname__}, which has a __torch_dispatch__",
        location=user_location(),
        advice=(*advice_on_plugins(SUBJECT), *PLAIN_TENSORS),
    )


@calls_program
def as_subclass(recorder: Recorder, original: Callable[..., Any], tensor: torch.Tensor, cls: type) -> Any:
    """The interception of ``tensor.as_subclass(cls)``: a new tensor object that shares the storage of ``tensor``."""
    if recorder.suspension.active or peek_interpreter_stack() is not None:
        if cls is torch.Tensor or not is_functorch_wrapped_tensor(tensor):
            return original(tensor, cls)
        raise UnsupportedError(
            f"under a transformation of torch.func, a tensor of the program becomes one of {cls.__qualname__}",
            location=user_location(),
            advice=("give the transformed function a plain tensor: tensor.as_subclass(torch.Tensor)",),
        )
    with DisableTorchFunction():
        alias = recorder.call(torch.ops.aten.alias.default, (tensor,), {})
    return classed(recorder, alias, cls)


@calls_program
def make_subclass(
    recorder: Recorder,
    original: Callable[..., Any],
    cls: type,
    data: torch.Tensor,
    require_grad: bool = False,
    **options: Any,
) -> Any:
    """The interception of ``torch.Tensor._make_subclass``, which constructors of parameters and of subclasses call."""
    if has_torch_dispatch(cls):  # as fake tensors, Thunder's among them
        return original(cls, data, require_grad, **options)
    with DisableTorchFunction():
        detached = recorder.call(torch.Tensor.detach, (data,), {})
        if require_grad:
            recorder.call(torch.Tensor.requires_grad_, (detached,), {})
    return classed(recorder, detached, cls)


def classed(recorder: Recorder, tensor: torch.Tensor, kind: type) -> torch.Tensor:
    """A new traced tensor as an instance of the user's class ``kind``.

    Raises:
        UnsupportedError: that cannot be recorded.
    """
    if has_torch_dispatch(kind):
        raise wrapper_error("a tensor of the program", kind)
    if kind is torch.Tensor:
        return tensor
    return recorder.tensors.traced(recorder.tensors.variable(tensor), kind)

"""Tensor subclasses: what their ``__torch_function__`` makes of a call is recorded; what acts below that is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

import torch

from thunder_core.acquire.traced_number import TracedNumber
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.errors import UnsupportedError
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import (
    FakeTensor,
    disabled_torch_function_impl,
    is_functional_tensor,
)
from thunder_core.tracing.user_frames import raising_location, user_location

_DISABLED: Final = disabled_torch_function_impl
_BELOW: Final = torch.Tensor.__torch_dispatch__
_NEVER: Final = frozenset(
    {torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), torch.Size, torch.dtype}
)


def has_torch_function(kind: type) -> bool:
    """Whether PyTorch hands calls with tensors of this class to the class: it inherits or defines that."""
    return kind is not torch.Tensor and kind.__torch_function__ is not _DISABLED  # type: ignore[attr-defined]


def has_torch_dispatch(kind: type) -> bool:
    """Whether the class changes operations below autograd, as `DTensor` and quantized weights do.

    Classes that define ``__torch_function__`` and are no tensors have no ``__torch_dispatch__``.
    """
    return getattr(kind, "__torch_dispatch__", _BELOW) is not _BELOW


@cache
def is_handed_calls(kind: type) -> bool:
    """Whether calls with tensors of this class are the class's to record."""
    return kind is not TracedNumber and has_torch_function(kind)


def wrappers(values: Iterable[Any]) -> list[torch.Tensor]:
    """The tensors of classes with a ``__torch_dispatch__`` among the arguments of a call; fakes are the recorder's."""
    found: list[torch.Tensor] = []
    for value in values:
        kind = type(value)
        if kind in _NEVER:
            continue
        if kind is tuple or kind is list:
            found += wrappers(value)
        elif isinstance(value, torch.Tensor) and has_torch_dispatch(kind) and not isinstance(value, FakeTensor):
            found.append(value)
    return found


def is_computed(tensor: torch.Tensor) -> bool:
    """Whether the program computes a tensor of a class of the user's, whose name lines do not show."""
    return type(tensor) is not torch.Tensor and is_traced(tensor)


def refuse_classes(values: Any, described: str, refused: Callable[[torch.Tensor], bool]) -> None:
    """Refuse tensors in ``values`` of which ``refused`` is true, for their class.

    Raises:
        UnsupportedError: there is one.
    """
    for leaf in iterate_leaves(values):
        if isinstance(leaf, torch.Tensor) and refused(leaf):
            kind = type(leaf)
            raise UnsupportedError(
                f"{described} is of the class {kind.__module__}.{kind.__qualname__}, which cannot be recorded",
                location=user_location(),
                advice=(
                    "give it a plain tensor: tensor.as_subclass(torch.Tensor)",
                    "or do this outside of the compiled function",
                ),
            )


def check_supported(tensor: torch.Tensor, described: str) -> None:
    """Refuse to compute with a tensor of a class that changes what operations are below ``__torch_function__``.

    Raises:
        UnsupportedError: the class has a ``__torch_dispatch__``, or the tensor is a functional wrapper of C++.
    """
    if has_torch_dispatch(type(tensor)):
        refuse_dispatch(type(tensor), described)
    if is_functional_tensor(tensor):
        raise UnsupportedError(
            f"{described} is a functional tensor, a wrapper that PyTorch's own tracers make",
            location=user_location(),
            advice=("call the compiled function outside of such a tracer",),
        )


def dispatch(func: Any, kinds: tuple[type, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the classes of the arguments make of a call: the first of ``kinds`` that does not decline.

    Runs under the mode that records: what ``__torch_function__`` calls becomes lines.
    """
    for kind in kinds:
        result = kind.__torch_function__(func, kinds, args, kwargs)  # type: ignore[attr-defined]
        if result is not NotImplemented:
            return result
    name = getattr(func, "__name__", func)
    raise TypeError(f"no implementation found for {name} on types that implement __torch_function__: {list(kinds)}")


def explain(error: Exception) -> None:
    """Say in Thunder's words why a constructor of a subclass fails, that of `torch.Tensor`, which is written in C.

    Raises:
        UnsupportedError: ``error`` comes from there.
    """
    if not isinstance(error, RuntimeError) or "Creating a new Tensor subclass" not in str(error):
        return
    raise UnsupportedError(
        f"a constructor that calls that of torch.Tensor with a tensor of the program cannot be recorded ({error})",
        location=raising_location(error),
        advice=("write tensor.as_subclass(Class) instead of Class(tensor)",),
    ) from error


def refuse_dispatch(kind: type, described: str) -> None:
    """Refuse a class that changes what operations are below ``__torch_function__``."""
    raise UnsupportedError(
        f"{described} is of the class {kind.__module__}.{kind.__qualname__}, which has a __torch_dispatch__, "
        "and cannot be an argument of this call",
        location=user_location(),
        advice=(
            "give the compiled function plain tensors, as DTensor.to_local() and dequantize() return them",
            "or run the code that computes with such tensors outside of the compiled function",
        ),
    )

"""The parts of a tensor that holds tensors, by the protocol of wrapper subclasses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.acquire.subclasses import has_torch_dispatch
from thunder_core.errors import UnsupportedError
from thunder_core.guards.node import own_attributes
from thunder_core.guards.plain import is_plain
from thunder_core.guards.wrapper_gradients import carries_gradient
from thunder_core.guards.wrapper_guard import flattened
from thunder_core.ir.location import SourceLocation
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass
from thunder_core.tracing.user_frames import user_location


@dataclass(frozen=True)
class WrapperParts:
    """What ``__tensor_flatten__`` gives, and ``__tensor_unflatten__`` takes.

    Attributes:
        inner: the tensors that it holds, and other objects, by their attributes.
        context: what the class says beside them.
        size, stride: of the outer tensor.
    """

    inner: dict[str, Any]
    context: Any
    size: tuple[Any, ...]
    stride: tuple[Any, ...]


def refuse_wrapper(kind: type, problem: str, *advice: str, location: SourceLocation | None = None) -> UnsupportedError:
    """The error at the user's line about a tensor of the class ``kind``, or a call that makes one of plain tensors."""
    if has_torch_dispatch(kind):
        reason = f"it is of the class {kind.__module__}.{kind.__qualname__}, which has a __torch_dispatch__"
    else:
        reason = "it makes a tensor of a class that has a __torch_dispatch__"
    return UnsupportedError(
        f"{problem}: {reason}",
        location=location or user_location(),
        advice=(
            *advice,
            "give the compiled function plain tensors, as DTensor.to_local() and dequantize() return them",
            "or run the code that computes with such tensors outside of the compiled function",
        ),
    )


def check_protocol(tensor: torch.Tensor, described: str) -> None:
    """Refuse a tensor whose class does not say what it consists of."""
    if not (hasattr(tensor, "__tensor_flatten__") and hasattr(type(tensor), "__tensor_unflatten__")):
        raise refuse_wrapper(
            type(tensor),
            f"{described} does not say which tensors it holds",
            "define __tensor_flatten__ and __tensor_unflatten__ in its class",
        )


def parts_of(tensor: torch.Tensor) -> WrapperParts:
    """The parts of a tensor that the program makes.

    Raises:
        UnsupportedError: its class does not name them.
    """
    check_protocol(tensor, "a tensor that the program returns or stores")
    with DisableTorchFunctionSubclass():
        parts, context = flattened(tensor)
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
    return WrapperParts(parts, context, size, stride)


def added_attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """The attributes of a tensor that the program makes which ``__tensor_unflatten__`` would not give another one."""
    parts = parts_of(tensor)
    attributes = {key: item for key, item in own_attributes(tensor).items() if key not in parts.inner}
    if all(map(is_plain, attributes.values())):
        return attributes
    kind: Any = type(tensor)
    with torch.no_grad(), DisableTorchFunctionSubclass():
        given = own_attributes(kind.__tensor_unflatten__(parts.inner, parts.context, parts.size, parts.stride))
    return {key: item for key, item in attributes.items() if key not in given or is_plain(item)}


def carrying(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A plain tensor itself, or the inner tensors of a wrapper that gradients go through; those of inner wrappers."""
    if not has_torch_dispatch(type(tensor)):
        yield tensor
        return
    for part in flattened(tensor)[0].values():
        if carries_gradient(part):
            yield from carrying(part)

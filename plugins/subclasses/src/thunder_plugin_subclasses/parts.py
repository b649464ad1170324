"""The parts of a tensor that holds tensors, by the protocol of wrapper subclasses."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.checks.plain import is_plain
from thunder_core.errors import RunEagerly, UnsupportedError
from thunder_core.ir.location import SourceLocation, at
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass
from thunder_core.tracing.frames import user_location
from thunder_frontend.observe.contents import own_attributes
from thunder_frontend.record.subclasses import PLAIN_TENSORS, has_torch_dispatch


@dataclass(frozen=True)
class WrapperParts:
    """The result of ``__tensor_flatten__``, with the further arguments of ``__tensor_unflatten__``.

    Attributes:
        inner: inner tensors, and other parts, by attribute.
        context: the context that ``__tensor_flatten__`` returns.
        size, stride: the size and strides of the outer tensor.
    """

    inner: dict[str, Any]
    context: Any
    size: tuple[Any, ...]
    stride: tuple[Any, ...]


def is_wrapper(value: Any) -> bool:
    """Whether a value is a tensor of a class with a ``__torch_dispatch__``."""
    return isinstance(value, torch.Tensor) and has_torch_dispatch(type(value))


def flattened(wrapper: Any) -> tuple[dict[str, Any], Any]:
    """The parts of a wrapper by attribute, and the context, from ``__tensor_flatten__``.

    Parts are inner tensors, and since PyTorch 2.13 other objects.
    """
    names, context = wrapper.__tensor_flatten__()
    return {name: getattr(wrapper, name) for name in names}, context


def made_like(wrapper: torch.Tensor, parts: dict[str, Any], context: Any) -> torch.Tensor:
    """A tensor of the class, shape and strides of ``wrapper``, in ``no_grad`` mode."""
    kind: Any = type(wrapper)
    with torch.no_grad():
        wrapper_: torch.Tensor = kind.__tensor_unflatten__(parts, context, wrapper.shape, wrapper.stride())
        return wrapper_


def gradient_parts(parts: Mapping[str, Any]) -> frozenset[str]:
    """The names of the parts that are tensors with gradients.

    A tensor without elements is none, as it may represent a size, but if no other has elements, the first one is: the
    shard of a process may be empty.
    """
    names = [name for name, part in parts.items() if isinstance(part, torch.Tensor) and _is_continuous(part)]
    return frozenset([name for name in names if parts[name].numel()] or names[:1])


def _is_continuous(part: torch.Tensor) -> bool:
    return part.dtype.is_floating_point or part.dtype.is_complex


def is_dispatched_in_c(kind: type) -> bool:
    """Whether the class dispatches operators in C++, as PyTorch does where a mode returns NotImplemented."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and kind is module.DTensor


def not_recorded(
    kind: type, problem: str, *advice: str, location: SourceLocation | None = None
) -> UnsupportedError | RunEagerly:
    """What to raise at the user's line about a tensor of the class ``kind``, or a call that creates one.

    Such a program runs eagerly, unless it communicates: the other processes might run compiled.
    """
    location = location or user_location()
    if not has_torch_dispatch(kind) or is_dispatched_in_c(kind):
        reason = "it creates a tensor of a class that has a __torch_dispatch__, or communicates"
        if has_torch_dispatch(kind):
            reason = _of_class(kind)
        return UnsupportedError(f"{problem}: {reason}", location=location, advice=(*advice, *PLAIN_TENSORS))
    return RunEagerly(f"{problem}: {_of_class(kind)}{at(location)}")


def _of_class(kind: type) -> str:
    return f"it is of the class {kind.__module__}.{kind.__qualname__}, which has a __torch_dispatch__"


def check_protocol(tensor: torch.Tensor, described: str) -> None:
    """Refuse a tensor whose class does not define ``__tensor_flatten__`` and ``__tensor_unflatten__``."""
    if not (hasattr(tensor, "__tensor_flatten__") and hasattr(type(tensor), "__tensor_unflatten__")):
        raise not_recorded(
            type(tensor),
            f"{described} does not declare which tensors it holds",
            "define __tensor_flatten__ and __tensor_unflatten__ in its class",
        )


def parts_of(tensor: torch.Tensor) -> WrapperParts:
    """The parts of a tensor that the program creates.

    Raises:
        RunEagerly: its class does not declare them.
    """
    check_protocol(tensor, "a tensor that the program returns or stores")
    with DisableTorchFunctionSubclass():
        parts, context = flattened(tensor)
        size, stride = tuple(tensor.shape), tuple(tensor.stride())
    return WrapperParts(parts, context, size, stride)


def added_attributes(tensor: torch.Tensor) -> dict[str, Any]:
    """The attributes of a tensor that the program creates which ``__tensor_unflatten__`` does not set."""
    parts = parts_of(tensor)
    attributes = {key: item for key, item in own_attributes(tensor).items() if key not in parts.inner}
    if all(map(is_plain, attributes.values())):
        return attributes
    kind: Any = type(tensor)
    with torch.no_grad(), DisableTorchFunctionSubclass():
        given = own_attributes(kind.__tensor_unflatten__(parts.inner, parts.context, parts.size, parts.stride))
    return {key: item for key, item in attributes.items() if key not in given or is_plain(item)}


def carrying(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A plain tensor itself, or the inner tensors of a wrapper, at all levels, that carry gradients."""
    if not is_wrapper(tensor):
        yield tensor
        return
    parts = flattened(tensor)[0]
    names = gradient_parts(parts)
    for name, part in parts.items():
        if name in names:
            yield from carrying(part)

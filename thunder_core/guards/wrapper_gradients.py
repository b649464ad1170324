"""Where gradients enter and leave wrapper subclasses: a compiled program differentiates their inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from thunder_core.guards.source import Args, Kwargs, Names
from thunder_core.guards.steps import StepSource
from thunder_core.guards.wrapper_guard import flattened
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass


def carries_gradient(value: Any) -> bool:
    """Whether an inner tensor is one that gradients go through. One without elements is none: it may hold a size."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return False
    return value.dtype.is_floating_point or value.dtype.is_complex


class _Inner(torch.autograd.Function):
    """The inner tensors of a wrapper, differentiably: the gradient is a wrapper of the gradients."""

    @staticmethod
    def forward(ctx: Any, wrapper: torch.Tensor) -> tuple[torch.Tensor, ...]:
        parts, ctx.context = flattened(wrapper)
        ctx.kind, ctx.size, ctx.stride = type(wrapper), wrapper.shape, wrapper.stride()
        ctx.others = {name: part for name, part in parts.items() if not carries_gradient(part)}
        ctx.names = tuple(parts)
        return tuple([part.detach() for part in parts.values() if carries_gradient(part)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        given = iter(gradients)
        parts = {name: ctx.others[name] if name in ctx.others else next(given) for name in ctx.names}
        with torch.no_grad():
            gradient = ctx.kind.__tensor_unflatten__(parts, ctx.context, ctx.size, ctx.stride)
            return gradient.detach() if gradient.requires_grad else gradient


class _Outer(torch.autograd.Function):
    """A wrapper of inner tensors, differentiably."""

    @staticmethod
    def forward(ctx: Any, unflatten: Callable[[dict[str, Any]], Any], parts: dict[str, Any], *_: Any) -> Any:
        ctx.names = [name for name, part in parts.items() if carries_gradient(part)]
        wrapper = unflatten({n: part.detach() if n in ctx.names else part for n, part in parts.items()})
        ctx.kind = type(wrapper)
        return wrapper.detach() if wrapper.requires_grad else wrapper

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        if type(gradient) is not ctx.kind:
            raise RuntimeError(
                f"the gradient of a {ctx.kind.__qualname__} that a compiled program returned is a "
                f"{type(gradient).__qualname__}; give backward one of the class of the result"
            )
        return (None, None, *[getattr(gradient, name) for name in ctx.names])


def inner_tensors(wrapper: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The inner tensors of floating point, through which the gradient of ``wrapper`` is computed."""
    with torch.enable_grad(), DisableTorchFunctionSubclass():
        inner: tuple[torch.Tensor, ...] = _Inner.apply(wrapper)
        return inner


def outer_tensor(unflatten: Any, parts: Mapping[str, Any], context: Any, size: Any, stride: Any) -> torch.Tensor:
    """The wrapper of some parts; autograd goes on from it to those that require grad."""

    def make(given: dict[str, Any]) -> torch.Tensor:
        wrapper: torch.Tensor = unflatten(given, context, size, stride)
        return wrapper

    with torch.enable_grad(), DisableTorchFunctionSubclass():
        wrapper: torch.Tensor = _Outer.apply(make, dict(parts), *filter(carries_gradient, parts.values()))
        return wrapper


@dataclass(frozen=True, slots=True)
class InnerTensorsSource(StepSource):
    """`inner_tensors` of the wrapper ``base``."""

    def describe(self) -> str:
        return f"{self.base.describe()}.inner"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return inner_tensors(self.base.read(args, kwargs))

    def step(self, base: str, names: Names) -> str:
        return f"{names.constant(inner_tensors, 'inner_tensors')}({base})"

"""Where gradients enter and leave wrapper subclasses: a compiled program differentiates their inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder_core.guards.source import Args, Kwargs, Names
from thunder_core.guards.steps import StepSource
from thunder_core.guards.wrapper_guard import facts, flattened
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass


def carries_gradient(value: Any) -> bool:
    """Whether an inner tensor is one that gradients go through. One without elements is none: it may hold a size."""
    if not isinstance(value, torch.Tensor) or not value.numel():
        return False
    return value.dtype.is_floating_point or value.dtype.is_complex


@dataclass(eq=False)
class GradientLayout:
    """How the gradient of a wrapper is taken apart into inner tensors; known when a program is recorded.

    Attributes:
        like: the context, shape and strides of the gradient, and what `facts` says of it; None for those of the tensor.
    """

    like: tuple[Any, Any, Any, Any] | None = None

    def settle(self, gradient: torch.Tensor) -> None:
        """The gradient is like this one."""
        context = flattened(gradient)[1]
        self.like = context, gradient.shape, gradient.stride(), facts(context)

    def fitting(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient that comes from outside of the program, as the program expects it.

        Raises:
            RuntimeError: its class cannot change its context to that one.
        """
        assert self.like is not None
        coerce = getattr(gradient, "__coerce_same_metadata_as_tangent__", None)
        coerced = None if coerce is None else coerce(self.like[0])
        if coerced is not None:
            result: torch.Tensor = coerced
            return result
        with torch.no_grad():
            given = gradient.detach().requires_grad_()  # the context may say whether it does
        if facts(flattened(given)[1]) != self.like[3]:
            raise RuntimeError(
                f"the gradient of a {type(gradient).__qualname__} that a compiled program returned has another context "
                "than the result; give backward one with the context of the result"
            )
        return gradient


class _Inner(torch.autograd.Function):
    """The inner tensors of a wrapper, differentiably: the gradient is a wrapper of the gradients."""

    @staticmethod
    def forward(ctx: Any, wrapper: torch.Tensor, layout: GradientLayout) -> tuple[torch.Tensor, ...]:
        parts, context = flattened(wrapper)
        ctx.kind, ctx.layout = type(wrapper), layout
        ctx.own = context, wrapper.shape, wrapper.stride()
        ctx.others = {name: part for name, part in parts.items() if not carries_gradient(part)}
        ctx.names = tuple(parts)
        return tuple([part.detach() for part in parts.values() if carries_gradient(part)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        given = iter(gradients)
        parts = {name: ctx.others[name] if name in ctx.others else next(given) for name in ctx.names}
        with torch.no_grad():
            like = ctx.own if ctx.layout.like is None else ctx.layout.like[:3]
            gradient = ctx.kind.__tensor_unflatten__(parts, *like)
            return gradient.detach() if gradient.requires_grad else gradient, None


class _Outer(torch.autograd.Function):
    """A wrapper of inner tensors, differentiably."""

    @staticmethod
    def forward(
        ctx: Any, unflatten: Callable[[dict[str, Any]], Any], parts: dict[str, Any], layout: GradientLayout, *_: Any
    ) -> Any:
        ctx.names = [name for name, part in parts.items() if carries_gradient(part)]
        wrapper = unflatten({n: part.detach() if n in ctx.names else part for n, part in parts.items()})
        ctx.kind, ctx.layout = type(wrapper), layout
        return wrapper.detach() if wrapper.requires_grad else wrapper

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        if type(gradient) is not ctx.kind:
            raise RuntimeError(
                f"the gradient of a {ctx.kind.__qualname__} that a compiled program returned is a "
                f"{type(gradient).__qualname__}; give backward one of the class of the result"
            )
        gradient = ctx.layout.fitting(gradient)
        return (None, None, None, *[getattr(gradient, name) for name in ctx.names])


def inner_tensors(wrapper: torch.Tensor, layout: GradientLayout) -> tuple[torch.Tensor, ...]:
    """The inner tensors of floating point, through which the gradient of ``wrapper`` is computed."""
    with torch.enable_grad(), DisableTorchFunctionSubclass():
        inner: tuple[torch.Tensor, ...] = _Inner.apply(wrapper, layout)
        return inner


def outer_tensor(
    unflatten: Any, parts: Mapping[str, Any], context: Any, size: Any, stride: Any, layout: GradientLayout
) -> torch.Tensor:
    """The wrapper of some parts; autograd goes on from it to those that require grad."""

    def make(given: dict[str, Any]) -> torch.Tensor:
        wrapper: torch.Tensor = unflatten(given, context, size, stride)
        return wrapper

    with torch.enable_grad(), DisableTorchFunctionSubclass():
        wrapper: torch.Tensor = _Outer.apply(make, dict(parts), layout, *filter(carries_gradient, parts.values()))
        return wrapper


@dataclass(frozen=True, slots=True)
class InnerTensorsSource(StepSource):
    """`inner_tensors` of the wrapper ``base``.

    Attributes:
        layout: of its gradient.
    """

    layout: GradientLayout = field(compare=False)

    def describe(self) -> str:
        return f"{self.base.describe()}.inner"

    def read(self, args: Args, kwargs: Kwargs) -> Any:
        return inner_tensors(self.base.read(args, kwargs), self.layout)

    def step(self, base: str, names: Names) -> str:
        layout = names.constant(self.layout, "layout")
        return f"{names.constant(inner_tensors, 'inner_tensors')}({base}, {layout})"

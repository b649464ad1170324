"""Gradients of wrapper subclasses at the boundary of a compiled program, which differentiates their inner tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from thunder_core.checks.source import Names, StepSource
from thunder_core.pytorch_internals import DisableTorchFunctionSubclass
from thunder_plugin_subclasses.guards import facts
from thunder_plugin_subclasses.parts import flattened, gradient_parts
from thunder_plugin_subclasses.wrapper_op import carried


@dataclass(eq=False)
class GradientLayout:
    """The layout by which the gradient of a wrapper is split into inner tensors; set when a program is recorded.

    Attributes:
        like: the context, shape and strides of the gradient, and its `facts`; None if the same as the tensor's.
    """

    like: tuple[Any, Any, Any, Any] | None = None

    def settle(self, gradient: torch.Tensor) -> None:
        """Set the layout to that of ``gradient``."""
        context = flattened(gradient)[1]
        self.like = context, gradient.shape, gradient.stride(), facts(context)

    def fitting(self, gradient: torch.Tensor) -> torch.Tensor:
        """A gradient from outside of the program, converted to the context that the program expects.

        Raises:
            RuntimeError: its class cannot convert it.
        """
        assert self.like is not None
        coerce = getattr(gradient, "__coerce_same_metadata_as_tangent__", None)
        coerced = None if coerce is None else coerce(self.like[0])
        if coerced is not None:
            result: torch.Tensor = coerced
            return result
        with torch.no_grad():
            given = gradient.detach().requires_grad_()  # the context may include ``requires_grad``
        if facts(flattened(given)[1]) != self.like[3]:
            raise RuntimeError(
                f"the gradient of a {type(gradient).__qualname__} that a compiled program returned has another context "
                "than the result; pass a gradient with the context of the result to backward"
            )
        return gradient


class _GradientMemory:
    """The memory of the inner tensors of gradients, so that no two gradients of wrappers share it.

    In ``x + y`` both arguments have the same gradient. If autograd gets one tensor for two leaves, it copies it. Two
    wrappers of one inner tensor are two tensors to autograd, which copies neither; so the inner tensor is copied here.
    """

    def __init__(self) -> None:
        self._used: dict[int, StorageWeakRef] = {}
        self._largest = 64  # the number of references at which expired ones are removed

    def add(self, tensor: torch.Tensor) -> bool:
        """Note the memory of a tensor; returns whether another living tensor that was added uses it."""
        if tensor.layout is not torch.strided:
            return False
        reference = StorageWeakRef(tensor.untyped_storage())
        known = self._used.get(reference.cdata)
        if known is not None and not known.expired():
            return True
        self._used[reference.cdata] = reference
        if len(self._used) > self._largest:
            self._used = {key: used for key, used in self._used.items() if not used.expired()}
            self._largest = max(64, 2 * len(self._used))
        return False

    def unshared(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor, or a copy if a tensor that was added uses its memory."""
        if not self.add(tensor):
            return tensor
        copy = tensor.clone()
        self.add(copy)
        return copy


_MEMORY: Final = _GradientMemory()


class _Inner(torch.autograd.Function):
    """Returns the inner tensors of a wrapper; the gradient of the wrapper is a wrapper of their gradients."""

    @staticmethod
    def forward(ctx: Any, wrapper: torch.Tensor, layout: GradientLayout) -> tuple[torch.Tensor, ...]:
        parts, context = flattened(wrapper)
        ctx.kind, ctx.layout = type(wrapper), layout
        ctx.own = context, wrapper.shape, wrapper.stride()
        carrying = gradient_parts(parts)
        ctx.others = {name: part for name, part in parts.items() if name not in carrying}
        ctx.names = tuple(parts)
        ctx.set_materialize_grads(False)
        inner = tuple([part.detach() for name, part in parts.items() if name in carrying])
        ctx.zeros = [partial(torch.zeros, part.shape, dtype=part.dtype, device=part.device) for part in inner]
        return inner

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, None]:
        if all(gradient is None for gradient in gradients):
            return None, None
        pairs = zip(gradients, ctx.zeros, strict=True)
        given = iter([zeros() if gradient is None else carried(gradient) for gradient, zeros in pairs])
        parts = {name: ctx.others[name] if name in ctx.others else _MEMORY.unshared(next(given)) for name in ctx.names}
        with torch.no_grad():
            like = ctx.own if ctx.layout.like is None else ctx.layout.like[:3]
            gradient = ctx.kind.__tensor_unflatten__(parts, *like)
            return gradient.detach() if gradient.requires_grad else gradient, None


class _Outer(torch.autograd.Function):
    """Returns a wrapper of inner tensors; their gradients are the inner tensors of the wrapper's gradient."""

    @staticmethod
    def forward(
        ctx: Any, unflatten: Callable[[dict[str, Any]], Any], parts: dict[str, Any], layout: GradientLayout, *_: Any
    ) -> Any:
        carrying = gradient_parts(parts)
        ctx.names = [name for name in parts if name in carrying]
        wrapper = unflatten({n: part.detach() if n in ctx.names else part for n, part in parts.items()})
        ctx.kind, ctx.layout = type(wrapper), layout
        return wrapper.detach() if wrapper.requires_grad else wrapper

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        if type(gradient) is not ctx.kind:
            raise RuntimeError(
                f"the gradient of a {ctx.kind.__qualname__} that a compiled program returned is a "
                f"{type(gradient).__qualname__}; pass a gradient of the class of the result to backward"
            )
        gradient = ctx.layout.fitting(gradient)
        inner = [getattr(gradient, name) for name in ctx.names]
        for tensor in inner:
            _MEMORY.add(tensor)  # of the caller; the program may return it as a gradient
        return (None, None, None, *inner)


def inner_tensors(wrapper: torch.Tensor, layout: GradientLayout) -> tuple[torch.Tensor, ...]:
    """The floating-point inner tensors, which carry the gradient of ``wrapper``."""
    with torch.enable_grad(), DisableTorchFunctionSubclass():
        inner: tuple[torch.Tensor, ...] = _Inner.apply(wrapper, layout)
        return inner


def outer_tensor(
    unflatten: Any, parts: Mapping[str, Any], context: Any, size: Any, stride: Any, layout: GradientLayout
) -> torch.Tensor:
    """The wrapper of the parts, differentiable with respect to those that require grad."""

    def make(given: dict[str, Any]) -> torch.Tensor:
        wrapper: torch.Tensor = unflatten(given, context, size, stride)
        return wrapper

    with torch.enable_grad(), DisableTorchFunctionSubclass():
        inner = [parts[name] for name in parts if name in gradient_parts(parts)]
        wrapper: torch.Tensor = _Outer.apply(make, dict(parts), layout, *inner)
        return wrapper


@dataclass(frozen=True, slots=True)
class InnerTensorsSource(StepSource):
    """`inner_tensors` of the wrapper ``base``.

    Attributes:
        layout: the layout of its gradient.
    """

    layout: GradientLayout = field(compare=False)

    def describe(self) -> str:
        return f"{self.base.describe()}.inner"

    def step(self, base: str, names: Names) -> str:
        layout = names.constant(self.layout, "layout")
        return f"{names.constant(inner_tensors, 'inner_tensors')}({base}, {layout})"

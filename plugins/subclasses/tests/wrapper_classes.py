"""Wrapper subclasses as libraries write them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten


class Quantized(Tensor):
    """A weight of int8 data and a scale for each row; linear layers by ``__torch_dispatch__``."""

    @staticmethod
    def __new__(cls, data: Tensor, scale: Tensor, dtype: torch.dtype) -> Quantized:
        return Tensor._make_wrapper_subclass(cls, data.shape, strides=data.stride(), dtype=dtype, device=data.device)

    def __init__(self, data: Tensor, scale: Tensor, dtype: torch.dtype) -> None:
        self.int_data, self.scale = data, scale

    @classmethod
    def of(cls, weight: Tensor) -> Any:
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls(torch.round(weight / scale).to(torch.int8), scale, weight.dtype)

    def dequantize(self) -> Tensor:
        return self.int_data.to(self.dtype) * self.scale

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={tuple(self.shape)})"

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["int_data", "scale"], (self.dtype,)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["int_data"], inner["scale"], *context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        weight = next(leaf for leaf in args if isinstance(leaf, Quantized))
        if func in (aten.detach.default, aten.clone.default, aten.alias.default):
            result = cls(func(weight.int_data), func(weight.scale), weight.dtype)
            return return_and_correct_aliasing(func, args, kwargs or {}, result)
        if func is aten.t.default:
            return cls(weight.int_data.t(), weight.scale.t(), weight.dtype)
        if func is aten._to_copy.default:
            return cls(weight.int_data.clone(), weight.scale.clone(), kwargs.get("dtype", weight.dtype))
        if func is aten.mm.default:
            return args[0] @ weight.dequantize()
        if func is aten.addmm.default:
            return args[1] @ weight.dequantize() + args[0]
        raise NotImplementedError(f"{cls.__name__} does not have {func}")


class QuantizedByFunction(Quantized):
    """The same; linear layers by ``__torch_function__``."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.linear:
            return F.linear(args[0], args[1].dequantize(), *args[2:], **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Factor(Tensor):
    """What it computes is multiplied by its factor, which is its context."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor, factor: Any) -> Factor:
        return Tensor._make_wrapper_subclass(cls, inner.shape, strides=inner.stride(), dtype=inner.dtype)

    def __init__(self, inner: Tensor, factor: Any) -> None:
        self.inner, self.factor = inner, factor

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], {"factor": self.factor}

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Factor:
        return Factor(inner["inner"], context["factor"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        factor = next(leaf.factor for leaf in tree_leaves(args) if isinstance(leaf, Factor))
        number = factor if isinstance(factor, int) else factor["by"]

        def inner(leaf: Any) -> Any:
            return leaf.inner if isinstance(leaf, Factor) else leaf

        def outer(leaf: Any) -> Any:
            return Factor(leaf * number, factor) if isinstance(leaf, Tensor) else leaf

        return tree_map(outer, func(*tree_map(inner, args), **tree_map(inner, kwargs or {})))


class Logged(Tensor):
    """Writes down the operators that it is given to."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> Logged:
        return Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, requires_grad=inner.requires_grad
        )

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Logged:
        return Logged(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        LOG.append(str(func))

        def inner(leaf: Any) -> Any:
            return leaf.inner if isinstance(leaf, Logged) else leaf

        result = func(*tree_map(inner, args), **tree_map(inner, kwargs or {}))
        return tree_map(lambda leaf: Logged(leaf) if isinstance(leaf, Tensor) else leaf, result)


LOG: list[str] = []


class Unnamed(Tensor):
    """Does not say what it holds."""

    @staticmethod
    def __new__(cls, inner: Tensor) -> Unnamed:
        return Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner: Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any, kwargs: Any = None) -> Any:
        return func(*tree_map(lambda leaf: leaf.inner if isinstance(leaf, Unnamed) else leaf, args), **(kwargs or {}))


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(*shape: int, seed: int = 0) -> Tensor:
    """A `TwoTensor`."""
    return TwoTensor(numbers(*shape, seed=seed), numbers(*shape, seed=seed + 1))


def assert_same(one: Any, other: Any) -> None:
    """Compare values with their classes, contexts, inner tensors and gradients."""
    assert type(one) is type(other)
    if isinstance(one, tuple | list):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_same(left, right)
    elif isinstance(one, dict):
        assert_same(list(one.items()), list(other.items()))
    elif isinstance(one, Tensor) and hasattr(one, "__tensor_flatten__"):
        (names, context), (other_names, other_context) = one.__tensor_flatten__(), other.__tensor_flatten__()
        assert list(names) == list(other_names)
        assert str(context) == str(other_context)
        assert one.requires_grad == other.requires_grad
        if not one.is_nested:
            assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert_same([getattr(one, name) for name in names], [getattr(other, name) for name in names])
        if one.is_leaf:
            assert_same(one.grad, other.grad)
    elif isinstance(one, Tensor):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()
        assert one.requires_grad == other.requires_grad
        if one.is_leaf:
            assert_same(one.grad, other.grad)
    else:
        assert one == other

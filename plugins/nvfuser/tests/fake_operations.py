"""The operations of the tests' own nvFuser, by their names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch


@dataclass(eq=False)
class Node:
    """A value of a definition: ``compute`` is called with what the arguments are."""

    compute: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    laid_out: bool = False


@dataclass(frozen=True)
class Scalar:
    value: Any
    dtype: torch.dtype


def _operands(values: Sequence[Any]) -> list[Any]:
    """Tensors and plain numbers, after the checks."""
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    assert tensors, "an operation on numbers alone"
    assert len({tensor.dtype for tensor in tensors}) == 1, f"dtypes {[tensor.dtype for tensor in tensors]}"
    assert len({tensor.shape for tensor in tensors}) == 1, f"shapes {[tensor.shape for tensor in tensors]}"
    dtype = tensors[0].dtype
    assert dtype not in (torch.float16, torch.bfloat16), "arithmetic in half precision"
    kind = torch.bool if dtype is torch.bool else torch.float64 if dtype.is_floating_point else torch.int64
    for value in values:
        assert isinstance(value, torch.Tensor) or value.dtype is kind, f"a number of {value.dtype} with {dtype}"
    return [torch.tensor(value.value, dtype=dtype) if isinstance(value, Scalar) else value for value in values]


def _arithmetic(function: Callable[..., Any], *, boolean: bool | None = False) -> Callable[..., Node]:
    def compute(*values: Any) -> Any:
        operands = _operands(values)
        assert boolean is None or (operands[0].dtype is torch.bool) == boolean, operands[0].dtype
        return function(*operands)

    return lambda *args: Node(compute, args)


def _floating(function: Callable[..., Any]) -> Callable[..., Node]:
    def checked(*operands: torch.Tensor) -> torch.Tensor:
        assert operands[0].is_floating_point()
        return function(*operands)

    return _arithmetic(checked)


def _cpp_quotient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")


def _where(condition: torch.Tensor, *sides: Any) -> torch.Tensor:
    assert condition.dtype is torch.bool
    tensors = [side for side in sides if isinstance(side, torch.Tensor)]
    assert all(side.shape == condition.shape for side in tensors)
    return torch.where(condition, *_operands(sides))


def _reduction(function: Callable[..., Any]) -> Callable[..., Node]:
    def build(arg: Node, dims: list[int], keepdim: bool = False) -> Node:
        def compute(tensor: torch.Tensor) -> torch.Tensor:
            (tensor,) = _operands([tensor])
            assert dims == sorted(set(dims))
            assert all(0 <= dim < tensor.ndim for dim in dims)
            assert dims
            return function(tensor, dims, keepdim).to(tensor.dtype)

        return Node(compute, (arg,))

    return build


def _product(tensor: torch.Tensor, dims: list[int], keepdim: bool) -> torch.Tensor:
    for dim in reversed(dims):
        tensor = tensor.prod(dim, keepdim=keepdim)
    return tensor


def _var_mean(arg: Node, dims: list[int], correction: int = 1, keepdim: bool = False) -> tuple[Node, Node]:
    assert isinstance(correction, int)
    both = Node(lambda x: torch.var_mean(*_operands([x]), dims, correction=correction, keepdim=keepdim), (arg,))
    return Node(lambda pair: pair[0], (both,)), Node(lambda pair: pair[1], (both,))


def _stride_order(arg: Node, stride_order: list[int]) -> Node:
    def compute(x: torch.Tensor) -> torch.Tensor:
        assert sorted(stride_order) == list(range(x.ndim))
        outermost_first = sorted(range(x.ndim), key=lambda dim: -stride_order[dim])
        back = [outermost_first.index(dim) for dim in range(x.ndim)]
        return x.permute(outermost_first).contiguous().permute(back)

    return Node(compute, (arg,), laid_out=True)


def _broadcast(arg: Node, is_broadcast_dim: list[bool]) -> Node:
    def compute(x: torch.Tensor) -> torch.Tensor:
        assert is_broadcast_dim.count(False) == x.ndim
        sizes = iter(x.shape)
        return x.reshape([1 if new else next(sizes) for new in is_broadcast_dim])

    return Node(compute, (arg,))


def _broadcast_in_dim(arg: Node, shape: list[int], broadcast_dims: list[int]) -> Node:
    def compute(x: torch.Tensor) -> torch.Tensor:
        assert len(broadcast_dims) == x.ndim
        assert broadcast_dims == sorted(broadcast_dims)
        places = [x.shape[broadcast_dims.index(dim)] if dim in broadcast_dims else 1 for dim in range(len(shape))]
        return x.reshape(places).expand(shape)

    return Node(compute, (arg,))


def _squeeze(arg: Node, dims: list[int], squeeze_expanded: bool = False) -> Node:
    def compute(x: torch.Tensor) -> torch.Tensor:
        assert dims
        assert all(x.shape[dim] == 1 for dim in dims)
        return x.squeeze(dims)

    return Node(compute, (arg,))


def _slice(arg: Node, start_indices: list[int], end_indices: list[int], strides: Any = None) -> Node:
    def compute(x: torch.Tensor) -> torch.Tensor:
        assert strides is None
        assert len(start_indices) == len(end_indices) == x.ndim
        assert all(0 <= start <= end for start, end in zip(start_indices, end_indices))
        return x[tuple(map(slice, start_indices, end_indices))]

    return Node(compute, (arg,))


def _pad(arg: Node, pad_widths: list[int], value: Scalar) -> Node:
    return Node(lambda x: torch.nn.functional.pad(x, pad_widths, value=value.value), (arg,))


def _index_select(arg: Node, index: Node, dim: int) -> Node:
    def compute(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        assert positions.ndim == 1
        assert (positions >= 0).all()
        return torch.index_select(x, dim, positions)

    return Node(compute, (arg, index))


def _scatter(arg: Node, index: Node, src: Any, dim: int) -> Node:
    def compute(x: torch.Tensor, positions: torch.Tensor, source: Any) -> torch.Tensor:
        return x.scatter(dim, positions, source.value if isinstance(source, Scalar) else source)

    return Node(compute, (arg, index, src))


def _iota(length: Scalar, start: Scalar, step: Scalar, dtype: torch.dtype) -> Node:
    return Node(lambda: torch.arange(length.value, dtype=dtype) * step.value + start.value)


def _matmul(function: Callable[..., Any]) -> Callable[..., Node]:
    return lambda *args: Node(function, args)


def _cast(arg: Node, dtype: torch.dtype) -> Node:
    def compute(x: torch.Tensor) -> torch.Tensor:
        halves = {torch.float16, torch.bfloat16} & {x.dtype, dtype}
        assert not halves or torch.float32 in (x.dtype, dtype), "half precision by way of another dtype than float32"
        return x.to(dtype)

    return Node(compute, (arg,))


_FLOATING = """acos acosh asin asinh atan atanh cos cosh erf erfc erfinv exp exp2 expm1 lgamma log log10 log1p log2
    reciprocal relu rsqrt sigmoid sin sinh sqrt tan tanh ceil floor round trunc isnan isinf isposinf isneginf isfinite
    atan2"""
_ANY_NUMBERS = "abs neg add sub mul fmod remainder pow maximum minimum eq ne lt le gt ge"
OPERATIONS = SimpleNamespace(
    **{name: _floating(getattr(torch, name)) for name in _FLOATING.split()},
    **{name: _arithmetic(getattr(torch, name)) for name in _ANY_NUMBERS.split()},
    **{name: _arithmetic(getattr(torch, name), boolean=True) for name in ("logical_and", "logical_or", "logical_not")},
    bitwise_and=_arithmetic(torch.bitwise_and),
    bitwise_or=_arithmetic(torch.bitwise_or),
    bitwise_xor=_arithmetic(torch.bitwise_xor),
    bitwise_not=_arithmetic(torch.bitwise_not),
    signbit=_floating(lambda x: torch.signbit(x).to(x.dtype)),
    truediv=_floating(torch.true_divide),
    div=_arithmetic(_cpp_quotient),
    where=lambda *args: Node(_where, args),
    sum=_reduction(lambda x, dims, keepdim: x.sum(dims, keepdim=keepdim)),
    prod=_reduction(_product),
    max=_reduction(torch.amax),
    min=_reduction(torch.amin),
    var_mean=_var_mean,
    cast=_cast,
    set=lambda arg: Node(lambda x: x, (arg,)),
    stride_order=_stride_order,
    reshape=lambda arg, new_shape: Node(lambda x: x.reshape(new_shape), (arg,)),
    permute=lambda arg, dims: Node(lambda x: x.permute(dims), (arg,)),
    broadcast=_broadcast,
    broadcast_in_dim=_broadcast_in_dim,
    squeeze=_squeeze,
    slice=_slice,
    cat=lambda tensors, dim: Node(lambda parts: torch.cat(parts, dim), (tensors,)),
    pad=_pad,
    index_select=_index_select,
    gather=lambda arg, index, dim: Node(lambda x, i: x.gather(dim, i), (arg, index)),
    scatter=_scatter,
    full=lambda shape, fill_value, dtype: Node(lambda: torch.full(shape, fill_value.value, dtype=dtype)),
    iota=_iota,
    matmul=_matmul(torch.matmul),
    linear=_matmul(torch.nn.functional.linear),
)

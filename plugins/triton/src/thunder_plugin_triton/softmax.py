"""Softmax over the last dimension: PyTorch's, and the composite with scale and mask."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.row_tiles import LARGEST
from thunder_plugin_triton.softmax_calls import gradient_of, softmax_into


def run(input: Tensor, scale: float, mask: Tensor | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """The composite."""
    output = _output(input, mask, dtype)
    softmax_into(input, scale, mask, output)
    return output


def forward(
    input: Tensor, scale: float, mask: Tensor | None = None, dtype: torch.dtype | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """The composite, and the residual of `backward`: the result."""
    output = run(input, scale, mask, dtype)
    return output, (output, scale, input.dtype)


def fake(
    input: Tensor, scale: float, mask: Tensor | None = None, dtype: torch.dtype | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    output = _output(input, mask, dtype)
    return output, (output, scale, input.dtype)


def run_torch(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """`torch.softmax`."""
    return run(input, 1.0, None, dtype)


def forward_torch(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> tuple[Tensor, tuple[Any, ...]]:
    """`torch.softmax`, and the residual of `backward`."""
    return forward(input, 1.0, None, dtype)


def fake_torch(input: Tensor, dim: int, dtype: torch.dtype | None = None) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward_torch`."""
    return fake(input, 1.0, None, dtype)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradient of the input; the mask has none."""
    output, scale, dtype = residuals
    gradient = gradient_of(output, cotangents[0], scale, dtype) if wanted[0] else None
    return (gradient, *[None] * (len(wanted) - 1))


def _output(input: Tensor, mask: Tensor | None, dtype: torch.dtype | None) -> Tensor:
    dtype_ = input.dtype if mask is None else torch.result_type(input, mask)
    return torch.empty(input.shape, dtype=dtype or dtype_, device=input.device)


def check(input: TensorProxy, scale: Any, mask: TensorProxy | None = None, dtype: Any = None) -> bool | str:
    """The reason for declining a call of the composite, or True."""
    if not isinstance(scale, (int, float)):
        return "the scale is known only at run time"
    return need.tensors(input=input, mask=mask) or _refusal_of_mask(input, mask) or _refusal(input, dtype) or True


def check_torch(input: TensorProxy, dim: Any, dtype: Any = None) -> bool | str:
    """The reason for declining a call of PyTorch's function, or True."""
    reason = need.tensors(input=input) or _refusal(input, dtype)
    if reason is None and dim not in (-1, input.ndim - 1):
        reason = f"dimension {dim} is not the last"
    return reason or True


def _refusal(input: TensorProxy, dtype: Any) -> str | None:
    if input.ndim == 0:
        return "input has no dimensions"
    if dtype is not None and dtype not in need.FLOATING:
        return f"the result is {dtype}; float32, float16 and bfloat16 are implemented"
    return need.width(input.shape[-1]) or need.rows(input)


def _refusal_of_mask(input: TensorProxy, mask: TensorProxy | None) -> str | None:
    if mask is None:
        return None
    if mask.requires_grad:
        return "the mask requires grad"
    if input.ndim > 4 or mask.ndim > input.ndim:
        return f"{max(input.ndim, mask.ndim)} dimensions with a mask: at most 4 are implemented"
    pairs = zip(reversed(input.shape), reversed(mask.shape))
    fits = all(of_mask in (1, size) for size, of_mask in pairs)
    return None if fits else f"the mask's shape {list(mask.shape)} is not broadcastable to {list(input.shape)}"


def variant(input: TensorProxy, *args: Any, **kwargs: Any) -> str:
    """The kernel: whole rows in registers, or rows in blocks."""
    width = input.shape[-1]
    if not isinstance(width, int):
        return "rows or blocks"
    return "rows" if width <= LARGEST else "blocks"


PAIR: Final = DerivativePair(forward, backward, fake)
PAIR_TORCH: Final = DerivativePair(forward_torch, backward, fake_torch)


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claims of both operations."""
    return (
        Claim(composites.scaled_softmax, run, check, PAIR, variant=variant),
        Claim(torch.softmax, run_torch, check_torch, PAIR_TORCH, variant=variant),
    )

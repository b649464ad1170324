"""Rotary embeddings of queries and keys with any order of dimensions; cosines and sines are not copied."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size, least_of
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton.options import TritonOptions
from thunder_plugin_triton.rotary_kernels import rotate
from thunder_plugin_triton.rotary_layout import broadcast_strides, four, layout, shared
from thunder_plugin_triton.rows import next_power_of_two
from thunder_plugin_triton.tuning import Configuration, Tunable, rows_bucket


def _candidates(half: int, heads: int, bucket: int) -> list[Configuration]:
    block = next_power_of_two(half)
    configurations: list[Configuration] = []
    for elements, most, warps in ((2048, 8, 4), (2048, 32, 4), (1024, 8, 4), (4096, 8, 8), (2048, 1, 4), (1024, 4, 2)):
        per_program = min(next_power_of_two(heads), most, max(1, elements // block))
        chosen = {
            "HEADS": per_program,
            "TOKENS": max(1, elements // block // per_program),
            "BLOCK": block,
            "num_warps": warps,
        }
        if chosen not in configurations:
            configurations.append(chosen)
    return configurations


_ROTATE: Final = Tunable("rotary", _candidates)
_LARGEST: Final = 1024


def run(input: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The composite; the memory format of the result follows the order of the input's dimensions."""
    output = torch.empty_like(input)
    _rotate(input, cos, sin, output, backward=False)
    return output


def forward(input: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
    """The composite, and the residuals of `backward`: cosines and sines."""
    output = run(input, cos, sin)
    return output, (cos, sin, output.stride())


def fake(input: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    output = torch.empty_like(input)
    return output, (cos, sin, output.stride())


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The gradient of the input."""
    cos, sin, stride = residuals
    (cotangent,) = cotangents
    if not wanted[0]:
        return None, None, None
    gradient = torch.empty_strided(cotangent.shape, stride, dtype=cotangent.dtype, device=cotangent.device)
    _rotate(cotangent if cotangent.stride(-1) == 1 else cotangent.contiguous(), cos, sin, gradient, backward=True)
    return gradient, None, None


def _rotate(input: Tensor, cos: Tensor, sin: Tensor, output: Tensor, *, backward: bool) -> None:
    tables = [broadcast_strides(table.shape, table.stride()) for table in (cos, sin)]
    order = layout(four(input.shape, 1), *tables)
    assert order is not None  # otherwise the check declines
    batches, heads, tokens = order.of(four(input.shape, 1))
    half = input.shape[-1] // 2
    strides = [*order.of(four(input.stride(), 0)), *order.of(four(output.stride(), 0))]
    for table in tables:
        batch, _, token = order.of(table)
        strides += [batch, token]

    def launch(chosen: Configuration) -> None:
        programs = batches * -(-heads // chosen["HEADS"]) * -(-tokens // chosen["TOKENS"])
        rotate[(programs,)](input, cos, sin, output, heads, tokens, *strides, HALF=half, BACKWARD=backward, **chosen)

    _ROTATE.run(input.device, (half, heads, rows_bucket(input.numel())), launch)


def check(input: TensorProxy, cos: TensorProxy, sin: TensorProxy) -> bool | str:
    """The reason for declining a call, or True."""
    return need.tensors(input=input, cos=cos, sin=sin) or _refusal(input, cos, sin) or True


def _refusal(input: TensorProxy, *tables: TensorProxy) -> str | None:
    if any(not isinstance(size, Size) for each in (input, *tables) for size in (*each.shape, *each.stride)):
        return "sizes are not known when the program is compiled"
    if not 0 < input.ndim <= 4 or any(table.ndim > input.ndim for table in tables):
        return (
            f"{max(each.ndim for each in (input, *tables))} dimensions: those of the input, at most 4, are implemented"
        )
    width = input.shape[-1]
    if width % 2 or not 0 < width <= _LARGEST or not all(least_of(size) > 0 for size in input.shape):
        return f"shape {list(input.shape)}: rows of an even number of elements, at most {_LARGEST}, are implemented"
    if any(least_of(step) <= 0 for size, step in zip(input.shape, input.stride) if size != 1) or input.stride[-1] != 1:
        return f"strides {list(input.stride)}: the elements of a row are not adjacent, or rows overlap"
    for table in tables:
        if table.requires_grad:
            return "cos or sin requires grad"
        if table.ndim == 0 or table.shape[-1] != width or table.stride[-1] != 1:
            return f"cos or sin, of shape {list(table.shape)}, does not have rows of {width} adjacent elements"
        if any(of_table not in (1, size) for of_table, size in zip(four(table.shape, 1), four(input.shape, 1))):
            return f"the shape {list(table.shape)} of cos or sin is not broadcastable to {list(input.shape)}"
    if not shared(four(input.shape, 1), *[broadcast_strides(table.shape, table.stride) for table in tables]):
        return "cos and sin differ in all dimensions"
    return None


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claim of the composite."""
    return (Claim(composites.rotary_embedding, run, check, DerivativePair(forward, backward, fake), variant="rows"),)

"""Launches of the kernels of softmax."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from thunder_plugin_triton import softmax_kernels as kernels
from thunder_plugin_triton.row_tiles import LARGEST, blocks, single_pass
from thunder_plugin_triton.rows import with_row_stride
from thunder_plugin_triton.tuning import Configuration, Tunable, rows_bucket

_FORWARD: Final = Tunable("softmax", single_pass)
_FORWARD_BLOCKS: Final = Tunable("softmax blocks", blocks)
_BACKWARD: Final = Tunable("softmax backward", single_pass)
_BACKWARD_BLOCKS: Final = Tunable("softmax blocks backward", blocks)


def softmax_into(input: Tensor, scale: float, mask: Tensor | None, output: Tensor) -> None:
    """Write the softmax of ``input * scale + mask`` over the last dimension to ``output``, which is contiguous."""
    width = input.shape[-1]
    rows = input.numel() // width
    if rows == 0:
        return
    masking, scale = _mask_layout(input, mask), float(scale)
    key = (width, rows_bucket(rows), input.dtype, output.dtype, mask is None)
    input, row_stride = with_row_stride(input, width)

    def launch(chosen: Configuration) -> None:
        kernels.softmax_rows[(-(-rows // chosen["ROWS"]),)](
            input, mask, output, rows, width, row_stride, scale, *masking, **chosen
        )  # fmt: skip

    def launch_blocks(chosen: Configuration) -> None:
        kernels.softmax_blocks[(rows,)](input, mask, output, width, row_stride, scale, *masking, **chosen)

    if width <= LARGEST:
        _FORWARD.run(output.device, key, launch)
    else:
        _FORWARD_BLOCKS.run(output.device, key, launch_blocks)


def gradient_of(result: Tensor, cotangent: Tensor, scale: float, dtype: torch.dtype) -> Tensor:
    """The gradient of the input, contiguous, in ``dtype``."""
    gradient = torch.empty(result.shape, dtype=dtype, device=result.device)
    width = result.shape[-1]
    rows = result.numel() // width
    if rows == 0:
        return gradient
    cotangent, stride = with_row_stride(cotangent, width)
    scale = float(scale)

    def launch(chosen: Configuration) -> None:
        kernels.gradients_of_rows[(-(-rows // chosen["ROWS"]),)](
            result, cotangent, gradient, rows, width, stride, scale, **chosen
        )  # fmt: skip

    def launch_blocks(chosen: Configuration) -> None:
        kernels.gradients_of_blocks[(rows,)](result, cotangent, gradient, width, stride, scale, **chosen)

    key = (width, rows_bucket(rows), result.dtype, dtype)
    if width <= LARGEST:
        _BACKWARD.run(result.device, key, launch)
    else:
        _BACKWARD_BLOCKS.run(result.device, key, launch_blocks)
    return gradient


def _mask_layout(input: Tensor, mask: Tensor | None) -> tuple[int, int, int, int, int, int]:
    """Numbers of heads and queries, and the mask's strides of batch, heads, queries and keys; 0 for broadcasting."""
    if mask is None:
        return (1, 1, 0, 0, 0, 0)
    _, heads, queries, _ = (1,) * (4 - input.ndim) + tuple(input.shape)
    strides = [0 if size == 1 else stride for size, stride in zip(mask.shape, mask.stride())]
    batch, head, query, key = [0] * (4 - mask.ndim) + strides
    return (heads, queries, batch, head, query, key)

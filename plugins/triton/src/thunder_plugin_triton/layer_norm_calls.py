"""Launches of the kernels of layer_norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor

from thunder_plugin_triton import layer_norm_kernels as kernels
from thunder_plugin_triton.column_sums import sum_into
from thunder_plugin_triton.environment import processors
from thunder_plugin_triton.row_tiles import accumulating, of_kernel, single_pass
from thunder_plugin_triton.rows import with_row_stride
from thunder_plugin_triton.tuning import Configuration, Tunable, rows_bucket

_FORWARD: Final = Tunable("layer_norm", single_pass)
_BACKWARD: Final = Tunable("layer_norm backward", accumulating)


def normalize(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    width: int,
    output: Tensor,
    statistics: Tensor | None,
) -> None:
    """Write the normalized rows to ``output``, and means and factors to ``statistics``, float32 ``[2, rows]``."""
    rows = output.numel() // width
    if rows == 0:
        return
    input, row_stride = with_row_stride(input, width)

    def launch(chosen: Configuration) -> None:
        kernels.normalize_rows[(-(-rows // chosen["ROWS"]),)](
            input, weight, bias, output, statistics, rows, width, row_stride, float(eps), **chosen
        )  # fmt: skip

    _FORWARD.run(input.device, (width, rows_bucket(rows), input.dtype, weight is None), launch)


def gradients(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    cotangent: Tensor,
    width: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    """The needed gradients of input, weight and bias, contiguous."""
    rows = input.numel() // width
    of_input, of_weight, of_bias = [
        torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device) if want and tensor is not None else None
        for tensor, want in zip((input, weight, bias), wanted)
    ]
    summed = [each for each in (of_weight, of_bias) if each is not None]
    input, row_stride = with_row_stride(input, width)
    cotangent, cotangent_stride = with_row_stride(cotangent, width)

    def launch(chosen: Configuration) -> None:
        programs = min(-(-rows // chosen["ROWS"]), processors(input.device) * chosen["PROGRAMS"])
        partials = statistics.new_empty((len(summed), programs, width))
        parts = iter(partials)
        places = [None if each is None else next(parts) for each in (of_weight, of_bias)]
        if programs:
            kernels.gradients_of_rows[(programs,)](
                input, weight, statistics, cotangent, of_input, *places, rows, width, row_stride, cotangent_stride,
                **of_kernel(chosen),
            )  # fmt: skip
        if summed:
            sum_into(partials, summed)

    _BACKWARD.run(input.device, (width, rows_bucket(rows), input.dtype, of_weight is None), launch)
    return of_input, of_weight, of_bias

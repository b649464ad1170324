"""Launches of the kernels of rms_norm."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from thunder_plugin_triton import rms_norm_kernels as kernels
from thunder_plugin_triton.column_sums import sum_into
from thunder_plugin_triton.environment import processors
from thunder_plugin_triton.row_tiles import accumulating, of_kernel, single_pass
from thunder_plugin_triton.rows import with_row_stride
from thunder_plugin_triton.tuning import Configuration, Tunable, rows_bucket

_FORWARD: Final = Tunable("rms_norm", single_pass)
_BACKWARD: Final = Tunable("rms_norm backward", accumulating)


def normalize(
    input: Tensor,
    weight: Tensor | None,
    eps: float,
    width: int,
    output: Tensor,
    scales: Tensor | None,
    unit_offset: bool,
    rounded: bool,
) -> None:
    """Write the normalized rows to ``output``, and their factors to ``scales``, float32 ``[rows]``."""
    rows = output.numel() // width
    if rows == 0:
        return
    input, row_stride = with_row_stride(input, width)

    def launch(chosen: Configuration) -> None:
        kernels.normalize_rows[(-(-rows // chosen["ROWS"]),)](
            input, weight, output, scales, rows, width, row_stride, float(eps),
            UNIT_OFFSET=unit_offset, ROUNDED=rounded, **chosen,
        )  # fmt: skip

    _FORWARD.run(input.device, (width, rows_bucket(rows), input.dtype, weight is None), launch)


def gradients(
    input: Tensor,
    weight: Tensor | None,
    scales: Tensor,
    cotangent: Tensor,
    width: int,
    unit_offset: bool,
    rounded: bool,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """The needed gradients of input and weight, contiguous."""
    rows = input.numel() // width
    of_input = torch.empty(input.shape, dtype=input.dtype, device=input.device) if wanted[0] else None
    of_weight = torch.empty_like(weight) if weight is not None and wanted[1] else None
    input, row_stride = with_row_stride(input, width)
    cotangent, cotangent_stride = with_row_stride(cotangent, width)

    def launch(chosen: Configuration) -> None:
        programs = min(-(-rows // chosen["ROWS"]), processors(input.device) * chosen["PROGRAMS"])
        partials = None if of_weight is None else scales.new_empty((1, programs, width))
        if programs:
            kernels.gradients_of_rows[(programs,)](
                input, weight, scales, cotangent, of_input, partials, rows, width, row_stride, cotangent_stride,
                UNIT_OFFSET=unit_offset, ROUNDED=rounded,
                **of_kernel(chosen),
            )  # fmt: skip
        if partials is not None and of_weight is not None:
            sum_into(partials, [of_weight])

    _BACKWARD.run(input.device, (width, rows_bucket(rows), input.dtype, of_weight is None), launch)
    return of_input, of_weight

"""Sums over rows that programs of a kernel have begun."""

from __future__ import annotations

from torch import Tensor

from thunder_plugin_triton import column_sums_kernels as kernels

_ROWS, _BLOCK = 64, 32  # 128 bytes of each row: a sector of memory, and many programs


def sum_into(partials: Tensor, output: Tensor) -> None:
    """Write sums over the first dimension.

    Args:
        partials: float32 ``[count, width]``, contiguous; zeros result where the count is 0.
        output: contiguous, of ``width`` elements.
    """
    count, width = partials.shape
    kernels.sum_columns[(-(-width // _BLOCK),)](
        partials, output, count, width, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4
    )  # fmt: skip

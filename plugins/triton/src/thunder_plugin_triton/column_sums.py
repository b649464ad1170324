"""Sums over rows, from partial sums that the programs of a kernel have written."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from thunder_plugin_triton import column_sums_kernels as kernels

_ROWS, _BLOCK = 64, 32  # 128 bytes of each row: a sector of memory, and many programs


def sum_into(partials: Tensor, outputs: Sequence[Tensor]) -> None:
    """Write sums over the second dimension, in one launch.

    Args:
        partials: float32 ``[len(outputs), count, width]``, contiguous; the sums are zero if ``count`` is 0.
        outputs: one or two contiguous tensors of ``width`` elements.
    """
    number, count, width = partials.shape
    kernels.sum_columns[(-(-width // _BLOCK), number)](
        partials, outputs[0], outputs[1] if number > 1 else None, count, width, ROWS=_ROWS, BLOCK=_BLOCK, num_warps=4
    )  # fmt: skip

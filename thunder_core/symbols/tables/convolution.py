"""Convolutions and pooling."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_CONVOLUTION = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1"
_TRANSPOSED = "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1"
_MAX_POOL = "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False"
_AVERAGE_POOL = (
    "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None"
)
_KEEPS = (Tag.MEMORY_FORMAT,)
_MAX_UNPOOL = "input, indices, kernel_size, stride=None, padding=0, output_size=None"

ROWS: list[Row] = [
    *[row(f"F.conv{n}d({_CONVOLUTION})", method=False, tags=(Tag.CONVOLUTION,)) for n in (1, 2, 3)],
    *[row(f"F.conv_transpose{n}d({_TRANSPOSED})", method=False) for n in (1, 2, 3)],
    *[row(f"F.max_pool{n}d({_MAX_POOL})", method=False, tags=_KEEPS) for n in (1, 2, 3)],
    *[row(f"F.max_unpool{n}d({_MAX_UNPOOL})", method=False) for n in (1, 2, 3)],
    *[row(f"F.adaptive_avg_pool{n}d(input, output_size)", method=False, tags=_KEEPS) for n in (1, 2, 3)],
    *[row(f"F.adaptive_max_pool{n}d(input, output_size, return_indices=False)", method=False) for n in (1, 2, 3)],
    *[
        row(f"F.lp_pool{n}d(input, norm_type, kernel_size, stride=None, ceil_mode=False)", method=False)
        for n in (1, 2, 3)
    ],
    row(f"F.avg_pool2d({_AVERAGE_POOL})", method=False, tags=_KEEPS),
    *rows(
        """
        F.avg_pool1d(input, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True)
        F.avg_pool3d(input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, \
            divisor_override=None)
        F.fold(input, output_size, kernel_size, dilation=1, padding=0, stride=1)
        F.unfold(input, kernel_size, dilation=1, padding=0, stride=1)
        """,
        method=False,
    ),
]

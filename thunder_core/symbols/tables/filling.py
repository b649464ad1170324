"""Tensors that are written as a whole."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row

ROWS: list[Row] = [
    row("Tensor.zero_(input)", tags=(Tag.FILL,)),
    row("Tensor.fill_(input, value)", tags=(Tag.FILL,)),
    row("Tensor.copy_(input, src/other, non_blocking=False)", tags=(Tag.FILL,), method=False),
]

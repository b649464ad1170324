"""Subscripts and properties."""

from typing import Final

from thunder_core.ir.symbol import CallStyle, Tag
from thunder_core.symbols.row import Row, Spelling, attribute

_INDEXING: Final = frozenset({Tag.INDEXING})

ROWS: list[Row] = [
    Row(
        "getitem",
        (),
        (Spelling("torch.Tensor.__getitem__"), Spelling("operator.getitem")),
        "operator.getitem",
        style=CallStyle.GETITEM,
        tags=_INDEXING,
    ),
    Row(
        "thunder_core.symbols.setitem_copy",
        (),
        (Spelling("thunder_core.symbols.setitem_copy"),),
        "thunder_core.symbols.setitem_copy",
        inplace=(Spelling("thunder_core.symbols.setitem"), Spelling("torch.Tensor.__setitem__")),
        tags=_INDEXING | {Tag.ASSIGNMENT, Tag.TAKES_FLOATS},
    ),
    attribute("T", Tag.SHAPE),
    attribute("H", Tag.SHAPE),
    attribute("mT", Tag.SHAPE),
    attribute("mH", Tag.SHAPE),
    attribute("real", Tag.SHAPE, also=("torch.real(input)",)),
    attribute("imag", Tag.SHAPE, also=("torch.imag(input)",)),
    attribute("data", Tag.DETACH, Tag.UNCOUNTED),
    attribute("grad", Tag.READS_AUTOGRAD),
]

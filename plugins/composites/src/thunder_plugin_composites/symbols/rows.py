"""The rows of the composites."""

import thunder_plugin_composites
from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row

_AT = thunder_plugin_composites.__name__


def _composite(call: str, *tags: Tag) -> Row:
    return row(f"{_AT}.{call}", method=False, tags=(Tag.COMPOSITE, *tags))


ROWS: list[Row] = [
    _composite("rms_norm(input, weight, eps, unit_offset=False, rounded=False)", Tag.NORMALIZATION),
    _composite("rotary_embedding(input, cos, sin)"),
    _composite("swiglu(gate, up)", Tag.ELEMENTWISE),
    _composite("geglu(gate, up, approximate='none')", Tag.ELEMENTWISE),
    _composite("scaled_softmax(input, scale, mask=None, dtype=None)"),
    _composite(
        "linear_cross_entropy(input, weight, target, bias=None, class_weight=None, ignore_index=-100, "
        "reduction='mean', label_smoothing=0.0, upcast=False, start=None, stop=None)",
        Tag.LOSS,
        Tag.MATMUL,
    ),
    _composite(
        "upcast_cross_entropy(input, target, class_weight=None, ignore_index=-100, reduction='mean', "
        "label_smoothing=0.0)",
        Tag.LOSS,
    ),
]

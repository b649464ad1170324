"""Attention."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row

_TAGS = (Tag.ATTENTION,)

ROWS: list[Row] = [
    row(
        "F.scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, "
        "scale=None, enable_gqa=False)",
        method=False,
        tags=_TAGS,
    ),
    row("F.multi_head_attention_forward(...)", method=False, tags=_TAGS),
]

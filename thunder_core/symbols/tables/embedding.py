"""Lookup tables."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, rows

ROWS: list[Row] = rows(
    """
    F.embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False)
    F.embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', \
        sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None)
    """,
    method=False,
    tags=(Tag.INDEXING,),
)

"""Normalisation over features, channels and batches."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_TAGS = (Tag.NORMALIZATION,)

ROWS: list[Row] = [
    row(
        "F.layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05)",
        "torch.layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True)",
        target="torch.layer_norm",
        method=False,
        tags=_TAGS,
    ),
    row(
        "F.rms_norm(input, normalized_shape, weight=None, eps=None)", target="torch.rms_norm", method=False, tags=_TAGS
    ),
    row(
        "F.batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, "
        "eps=1e-05)",
        method=False,
        tags=(*_TAGS, Tag.MEMORY_FORMAT),
    ),
    *rows(
        """
        F.group_norm(input, num_groups, weight=None, bias=None, eps=1e-05)
        F.instance_norm(input, running_mean=None, running_var=None, weight=None, bias=None, use_input_stats=True, \
            momentum=0.1, eps=1e-05)
        F.local_response_norm(input, size, alpha=0.0001, beta=0.75, k=1.0)
        F.normalize(input, p=2.0, dim=1, eps=1e-12)
        """,
        method=False,
        tags=_TAGS,
    ),
]

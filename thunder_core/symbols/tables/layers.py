"""Layers of neural networks: normalization, convolution, pooling, images, embeddings, attention and recurrence."""

from thunder_core.ir.symbol import Tag
from thunder_core.symbols.row import Row, row, rows

_CONVOLUTION = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1"
_TRANSPOSED = "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1"
_MAX_POOL = "input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False"
_AVERAGE_POOL = (
    "input, kernel_size, stride=None, padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None"
)
_KEEPS = (Tag.MEMORY_FORMAT,)
_NORMALIZES = (Tag.NORMALIZATION, Tag.TAKES_FLOATS)
_MAX_UNPOOL = "input, indices, kernel_size, stride=None, padding=0, output_size=None"

_NORMALIZATION: list[Row] = [
    row(
        "F.layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05)",
        "torch.layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-05, cudnn_enable=True)",
        target="torch.layer_norm",
        method=False,
        tags=_NORMALIZES,
    ),
    row(
        "F.rms_norm(input, normalized_shape, weight=None, eps=None)",
        target="torch.rms_norm",
        method=False,
        tags=_NORMALIZES,
    ),
    row(
        "F.batch_norm(input, running_mean, running_var, weight=None, bias=None, training=False, momentum=0.1, "
        "eps=1e-05)",
        method=False,
        tags=(*_NORMALIZES, Tag.MEMORY_FORMAT),
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
        tags=_NORMALIZES,
    ),
]
"""Normalisation over features, channels and batches."""

_CONVOLUTIONS: list[Row] = [
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
"""Convolutions and pooling."""

_IMAGES: list[Row] = rows(
    """
    F.interpolate(input, size=None, scale_factor=None, mode='nearest', align_corners=None, \
        recompute_scale_factor=None, antialias=False)
    F.upsample(input, size=None, scale_factor=None, mode='nearest', align_corners=None)
    F.grid_sample(input, grid, mode='bilinear', padding_mode='zeros', align_corners=None)
    F.affine_grid(theta, size, align_corners=None)
    F.pixel_shuffle(input, upscale_factor)
    F.pixel_unshuffle(input, downscale_factor)
    F.channel_shuffle(input, groups)
    """,
    method=False,
)
"""Resampling and rearranging of images."""

_EMBEDDINGS: list[Row] = rows(
    """
    F.embedding(input, weight, padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False)
    F.embedding_bag(input, weight, offsets=None, max_norm=None, norm_type=2, scale_grad_by_freq=False, mode='mean', \
        sparse=False, per_sample_weights=None, include_last_offset=False, padding_idx=None)
    """,
    method=False,
    tags=(Tag.INDEXING,),
)
"""Lookup tables."""

_ATTENTION: list[Row] = [
    row(
        "F.scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, "
        "scale=None, enable_gqa=False)",
        method=False,
        tags=(Tag.ATTENTION,),
    ),
    row("F.multi_head_attention_forward(...)", method=False, tags=(Tag.ATTENTION,)),
]
"""Attention."""

_RECURRENT: list[Row] = [
    *[row(f"torch.{name}(...)", method=False, tags=(Tag.RANDOM,)) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")],
    *rows(
        """
        torch.lstm_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        torch.gru_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        torch.rnn_tanh_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        torch.rnn_relu_cell(input, hx, w_ih, w_hh, b_ih=None, b_hh=None)
        """,
        method=False,
    ),
]
"""Recurrent networks and their cells. Overloads for packed sequences have other positions: arguments stay."""

ROWS: list[Row] = [*_NORMALIZATION, *_CONVOLUTIONS, *_IMAGES, *_EMBEDDINGS, *_ATTENTION, *_RECURRENT]

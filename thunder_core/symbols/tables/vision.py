"""Resampling and rearranging of images."""

from thunder_core.symbols.row import Row, rows

ROWS: list[Row] = rows(
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

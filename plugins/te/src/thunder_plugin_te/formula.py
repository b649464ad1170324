"""The formulas of Transformer Engine's casts in PyTorch operations.

They determine the metadata of a cast's results, and are the reference for its kernels. Sources in Transformer Engine
2.20: ``common/recipe/recipe_common.cuh`` for scales, ``Float8BlockQuantizer.get_scale_shape`` for the layout of block
scales.
"""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import pad

from thunder_plugin_te.recipes import Format, Scaling

FORMATS: Final[dict[Format, torch.dtype]] = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
BLOCK: Final = 128
_WITHOUT_MANTISSA: Final = -(1 << 23)  # bits of a float32: sign and exponent


def converted(matrix: Tensor, scaling: Scaling, form: Format, columns: bool) -> tuple[Tensor, ...]:
    """See `thunder_plugin_te.operations.quantize`; for a matrix."""
    values = matrix.float()
    if scaling == "tensor":
        scale = scale_for(values.abs().amax(), form)
        rows = rounded(values * scale, form)
        by_rows = (rows, scale.reciprocal().reshape(1))
        return (*by_rows, rows.t().contiguous()) if columns else by_rows
    block = (1, BLOCK) if scaling == "1x128" else (BLOCK, BLOCK)
    both = _in_blocks(values, block, form)
    return (*both, *_in_blocks(values.t(), block, form)) if columns else both


def scale_for(amax: Tensor, form: Format, *, power: bool = False) -> Tensor:
    """The scale for values up to ``amax``; 1 if ``amax`` is zero or not finite.

    Args:
        amax: the largest absolute value.
        form: the eight-bit format.
        power: whether to round the scale down to a power of two.
    """
    scale = torch.finfo(FORMATS[form]).max / amax
    scale = scale.clamp(max=torch.finfo(torch.float32).max)
    if power:
        scale = (scale.view(torch.int32) & _WITHOUT_MANTISSA).view(torch.float32)
    return torch.where((amax > 0) & amax.isfinite(), scale, 1.0)


def rounded(values: Tensor, form: Format) -> Tensor:
    """The bytes of the nearest numbers of the format; larger values saturate."""
    dtype = FORMATS[form]
    largest = torch.finfo(dtype).max
    return values.clamp(-largest, largest).to(dtype).view(torch.uint8)


def values_of(data: Tensor, inverse: Tensor, scaling: Scaling, form: Format) -> Tensor:
    """The float32 values of a matrix of bytes with the reciprocals of its scales."""
    values = data.view(FORMATS[form]).float()
    if scaling == "tensor":
        return values * inverse
    height, width = data.shape
    if scaling == "1x128":
        return values * inverse[:, :height].t().repeat_interleave(BLOCK, 1)[:, :width]
    return values * inverse.repeat_interleave(BLOCK, 0)[:height].repeat_interleave(BLOCK, 1)[:, :width]


def _in_blocks(values: Tensor, block: tuple[int, int], form: Format) -> tuple[Tensor, Tensor]:
    """Bytes, and the reciprocals of the block scales in the layout of matmuls."""
    (height, width), (high, wide) = values.shape, block
    down, along = math.ceil(height / high), math.ceil(width / wide)
    padded = pad(values, (0, along * wide - width, 0, down * high - height))
    tiles = padded.reshape(down, high, along, wide)
    scale = scale_for(tiles.abs().amax((1, 3)), form, power=True)
    data = rounded(tiles * scale[:, None, :, None], form).reshape(down * high, along * wide)
    inverse = scale.reciprocal()
    inverse = inverse.t() if high == 1 else inverse
    inverse = pad(inverse, (0, -inverse.shape[1] % 4))
    return data[:height, :width].contiguous(), inverse.clone(memory_format=torch.contiguous_format)

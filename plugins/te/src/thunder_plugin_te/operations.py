"""The operations that replace linear layers in traces.

Their implementations compute the results of Transformer Engine's kernels with PyTorch operations: slow, but on any
device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thunder_core.symbols import recorded
from thunder_plugin_te import formula
from thunder_plugin_te.recipes import Format, Scaling, recipe_of_key

Parts = tuple[Tensor, ...]
"""The results of `quantize`."""


@recorded
def quantize(tensor: Tensor, scaling: Scaling, form: Format, columns: bool) -> Parts:
    """Quantize a tensor to eight bits for matmuls.

    Args:
        tensor: (..., width); the other dimensions are flattened to ``height``.
        scaling: which elements share a scale.
        form: the eight-bit format.
        columns: whether the transposed tensor is needed as well.

    Returns:
        Bytes (height, width) of uint8, and the reciprocals of the scales in float32. With ``columns`` also the
        transposed bytes (width, height); for blocks these have separate scales, which come last. Reciprocals are (1,)
        for a whole tensor; (width / 128, height) for blocks of a row and (height / 128, width / 128) for squares, both
        rounded up, the last dimension to a multiple of four.
    """
    with torch.no_grad():
        return formula.converted(tensor.reshape(-1, tensor.shape[-1]), scaling, form, columns)


@recorded
def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None, input_parts: Parts, weight_parts: Parts, recipe: str
) -> Tensor:
    """`torch.nn.functional.linear` of quantized tensors.

    Args:
        input, weight, bias: its arguments. Of the first two only the metadata is used; gradients are theirs.
        input_parts, weight_parts: `quantize` of both.
        recipe: `Recipe.key`.
    """
    parsed = recipe_of_key(recipe)
    x = formula.values_of(input_parts[0], input_parts[1], parsed.input, "e4m3").to(input.dtype).view(input.shape)
    w = formula.values_of(weight_parts[0], weight_parts[1], parsed.weight, "e4m3").to(weight.dtype)
    # the values of the former, the gradient of the latter
    x, w = input + (x - input).detach(), weight + (w - weight).detach()
    return torch.nn.functional.linear(x, w, bias)


@recorded
def linear_delayed(input: Tensor, weight: Tensor, bias: Tensor | None, columns: str, recipe: str, site: str) -> Tensor:
    """`torch.nn.functional.linear` with delayed scales; the implementation here uses no scales.

    Args:
        input, weight, bias: its arguments.
        columns: the tensors whose columns backward needs: ``"input"``, ``"weight"``, ``"both"`` or ``"none"``.
        recipe: `Recipe.key`.
        site: the name of its scales in state dicts.
    """
    return torch.nn.functional.linear(input, weight, bias)

"""The operations that linear layers are rewritten to, as traces print them.

Called as they are, they compute what Transformer Engine's kernels do, in PyTorch operations: slow, for any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thunder_core.symbols import recorded
from thunder_plugin_te import formula
from thunder_plugin_te.recipes import Format, Scaling, recipe_of_key

Parts = tuple[Tensor, ...]
"""What `quantize` gives."""


@recorded
def quantize(tensor: Tensor, scaling: Scaling, form: Format, columns: bool) -> Parts:
    """A tensor in eight bits, as products read it.

    Args:
        tensor: (..., width); the dimensions before the last count as one, of ``height``.
        scaling: which elements have a scale in common.
        form: the eight-bit format.
        columns: whether it is needed transposed as well.

    Returns:
        Bytes (height, width) of uint8, and the reciprocals of the scales in float32. With ``columns`` also the bytes
        transposed (width, height); for blocks these have scales of their own, which come last. Reciprocals are (1,)
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
        input, weight, bias: as there. Of the first two, only types matter; gradients are theirs.
        input_parts, weight_parts: `quantize` of both.
        recipe: `Recipe.key`.
    """
    own = recipe_of_key(recipe)
    x = formula.values_of(input_parts[0], input_parts[1], own.input, "e4m3").to(input.dtype).view(input.shape)
    w = formula.values_of(weight_parts[0], weight_parts[1], own.weight, "e4m3").to(weight.dtype)
    # the values of the one, the gradient of the other
    x, w = input + (x - input).detach(), weight + (w - weight).detach()
    return torch.nn.functional.linear(x, w, bias)


@recorded
def linear_delayed(input: Tensor, weight: Tensor, bias: Tensor | None, columns: str, recipe: str, site: str) -> Tensor:
    """`torch.nn.functional.linear` with scales of the past; called as it is, without any.

    Args:
        input, weight, bias: as there.
        columns: which of them backward needs: ``"input"``, ``"weight"``, ``"both"`` or ``"none"``.
        recipe: `Recipe.key`.
        site: what its scales are called in state dicts.
    """
    return torch.nn.functional.linear(input, weight, bias)

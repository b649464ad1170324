"""Forward and backward of a linear layer with quantized tensors: what runs `thunder_plugin_te.operations`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_plugin_te import library
from thunder_plugin_te.operations import Parts
from thunder_plugin_te.recipes import Format, Recipe, Scaling, recipe_of_key

Residuals = tuple[Any, ...]
Gradients = tuple[Tensor | None, ...]


def quantize(tensor: Tensor, scaling: Scaling, form: Format, columns: bool) -> Parts:
    """Runs `thunder_plugin_te.operations.quantize`."""
    return library.quantize(tensor.reshape(-1, tensor.shape[-1]).contiguous(), scaling, form, columns)


def forward(
    input: Tensor, weight: Tensor, bias: Tensor | None, input_parts: Parts, weight_parts: Parts, recipe: str
) -> tuple[Tensor, Residuals]:
    """Runs `thunder_plugin_te.operations.linear`; keeps of both tensors what backward reads."""
    product = library.forward_product(input_parts, weight_parts, recipe_of_key(recipe), input.dtype, bias)
    residuals = (_kept(input_parts), _kept(weight_parts), bias is not None, recipe)
    return product.view(*input.shape[:-1], weight.shape[0]), residuals


def run(
    input: Tensor, weight: Tensor, bias: Tensor | None, input_parts: Parts, weight_parts: Parts, recipe: str
) -> Tensor:
    """The same without gradients."""
    return forward(input, weight, bias, input_parts, weight_parts, recipe)[0]


def backward(residuals: Residuals, cotangents: Gradients, wanted: tuple[bool, ...]) -> Gradients:
    """Gradients of input, weight and bias; the quantized tensors among the arguments have none."""
    input, weight, has_bias, key = residuals
    recipe, cotangent = recipe_of_key(key), cotangents[0]
    assert cotangent is not None
    matrix = cotangent.reshape(-1, cotangent.shape[-1]).contiguous()
    parts: Parts = ()
    if wanted[0] or wanted[1]:
        parts = library.quantize(matrix, recipe.gradient, recipe.gradient_format, wanted[1])
    own = gradients(cotangent, matrix, parts, (input, weight), recipe, wanted[: 3 if has_bias else 2])
    return (*own, *[None] * (len(wanted) - len(own)))


def gradients(
    cotangent: Tensor,
    matrix: Tensor,
    parts: Parts,
    saved: tuple[Parts, Parts],
    recipe: Recipe,
    wanted: tuple[bool, ...],
) -> Gradients:
    """Those of input, weight and, if ``wanted`` has a place for it, bias.

    Args:
        cotangent: (..., outputs), the gradient of the result.
        matrix: the same with two dimensions.
        parts: the same quantized, with columns where the weight's gradient is wanted.
        saved: columns of input and weight.
    """
    input, weight = saved
    dtype = cotangent.dtype
    of_input = of_weight = None
    if wanted[0]:
        product = library.input_gradient(parts, weight, recipe, dtype)
        of_input = product.view(*cotangent.shape[:-1], weight[0].shape[0])
    if wanted[1]:
        of_weight = library.weight_gradient(library.columns_of(parts), input, recipe, dtype)
    return (of_input, of_weight, *[matrix.sum(0) if want else None for want in wanted[2:]])


def fake(
    input: Tensor, weight: Tensor, bias: Tensor | None, input_parts: Parts, weight_parts: Parts, recipe: str
) -> tuple[Tensor, Residuals]:
    """Types of what `forward` returns."""
    output = input.new_empty((*input.shape[:-1], weight.shape[0]))
    return output, (_kept(input_parts), _kept(weight_parts), bias is not None, recipe)


def _kept(parts: Parts) -> Parts:
    """The columns, if there are any."""
    return library.columns_of(parts) if len(parts) > 2 else ()


PAIR = DerivativePair(forward, backward, fake)


def run_without_gradients(input: Tensor, weight: Tensor, bias: Tensor | None, key: str) -> Tensor:
    """The layer with scales of its tensors' own, which takes neither state nor columns."""
    recipe = recipe_of_key(key)
    x, w = quantize(input, recipe.input, "e4m3", False), quantize(weight, recipe.weight, "e4m3", False)
    return run(input, weight, bias, x, w, key)

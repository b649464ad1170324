"""Forward and backward of a linear layer with quantized tensors, which run `thunder_plugin_te.operations`."""

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
    """Run `thunder_plugin_te.operations.quantize`."""
    return library.quantize(tensor.reshape(-1, tensor.shape[-1]).contiguous(), scaling, form, columns)


def forward(
    input: Tensor, weight: Tensor, bias: Tensor | None, input_parts: Parts, weight_parts: Parts, recipe: str
) -> tuple[Tensor, Residuals]:
    """Run `thunder_plugin_te.operations.linear`, and return the parts of both tensors that backward reads."""
    result = library.forward_matmul(input_parts, weight_parts, recipe_of_key(recipe), input.dtype, bias)
    residuals = (_columns(input_parts), _columns(weight_parts), bias is not None, recipe)
    return result.view(*input.shape[:-1], weight.shape[0]), residuals


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
    results = gradients(cotangent, matrix, parts, (input, weight), recipe, wanted[: 3 if has_bias else 2])
    return (*results, *[None] * (len(wanted) - len(results)))


def gradients(
    cotangent: Tensor,
    matrix: Tensor,
    parts: Parts,
    saved: tuple[Parts, Parts],
    recipe: Recipe,
    wanted: tuple[bool, ...],
) -> Gradients:
    """The gradients of input, weight and, if ``wanted`` has an entry for it, bias.

    Args:
        cotangent: (..., outputs), the gradient of the result.
        matrix: the same with two dimensions.
        parts: the same quantized, with columns if the weight's gradient is needed.
        saved: columns of input and weight.
        recipe: the recipe.
        wanted: whether each gradient is needed.
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
    """The fake implementation of `forward`."""
    output = input.new_empty((*input.shape[:-1], weight.shape[0]))
    return output, (_columns(input_parts), _columns(weight_parts), bias is not None, recipe)


def _columns(parts: Parts) -> Parts:
    """The columns, if there are any."""
    return library.columns_of(parts) if len(parts) > 2 else ()


PAIR = DerivativePair(forward, backward, fake)


def run_without_gradients(input: Tensor, weight: Tensor, bias: Tensor | None, key: str) -> Tensor:
    """The layer with scales from the current amax, without state and columns."""
    recipe = recipe_of_key(key)
    x, w = quantize(input, recipe.input, "e4m3", False), quantize(weight, recipe.weight, "e4m3", False)
    return run(input, weight, bias, x, w, key)

"""Forward and backward of a linear layer with delayed scales."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_plugin_te import library
from thunder_plugin_te.matmuls import Gradients, Residuals, gradients, run_without_gradients
from thunder_plugin_te.operations import Parts
from thunder_plugin_te.options import TeOptions
from thunder_plugin_te.recipes import recipe_of, recipe_of_key
from thunder_plugin_te.scales import LayerScales

_SITE: Final = 5  # positions of the arguments of `linear_delayed`


@dataclass(frozen=True)
class Sites:
    """Creates the state of each operation."""

    options: TeOptions

    def __call__(self, op: BoundSymbol) -> LayerScales:
        return LayerScales(self.name(op), self.options, recipe_of(self.options).gradient_format)

    def name(self, op: BoundSymbol) -> str:
        """The name of the state in state dicts."""
        site: str = op.args[_SITE]
        return site


def run(
    state: LayerScales, input: Tensor, weight: Tensor, bias: Tensor | None, columns: str, recipe: str, site: str
) -> Tensor:
    """Without gradients the current amax determines the scales, and the state of training is not changed."""
    return run_without_gradients(input, weight, bias, recipe)


def forward(
    state: LayerScales, input: Tensor, weight: Tensor, bias: Tensor | None, columns: str, recipe: str, site: str
) -> tuple[Tensor, Residuals]:
    """Runs `thunder_plugin_te.operations.linear_delayed`."""
    state.begin(input.device)
    of_input, of_weight = columns in ("input", "both"), columns in ("weight", "both")
    x = state.forward.quantize(0, input.reshape(-1, input.shape[-1]), of_input)
    w = state.forward.quantize(1, weight, of_weight)
    product = library.forward_matmul(x, w, recipe_of_key(recipe), input.dtype, bias)
    saved = (library.columns_of(x) if of_input else (), library.columns_of(w) if of_weight else ())
    return product.view(*input.shape[:-1], weight.shape[0]), (*saved, bias is not None, recipe)


def backward(state: LayerScales, residuals: Residuals, cotangents: Gradients, wanted: tuple[bool, ...]) -> Gradients:
    """Gradients of input, weight and bias."""
    input, weight, _, key = residuals
    cotangent = cotangents[0]
    assert cotangent is not None
    matrix = cotangent.reshape(-1, cotangent.shape[-1]).contiguous()
    parts: Parts = state.backward.quantize(0, matrix, wanted[1]) if wanted[0] or wanted[1] else ()
    results = gradients(cotangent, matrix, parts, (input, weight), recipe_of_key(key), wanted)
    state.finish()
    return results


def fake(
    state: LayerScales, input: Tensor, weight: Tensor, bias: Tensor | None, columns: str, recipe: str, site: str
) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    x = _columns(input.reshape(-1, input.shape[-1])) if columns in ("input", "both") else ()
    w = _columns(weight) if columns in ("weight", "both") else ()
    return input.new_empty((*input.shape[:-1], weight.shape[0])), (x, w, bias is not None, recipe)


def _columns(matrix: Tensor) -> Parts:
    rows, width = matrix.shape
    return matrix.new_empty((width, rows), dtype=torch.uint8), matrix.new_empty((1,), dtype=torch.float32)


PAIR = DerivativePair(forward, backward, fake, pure=False)

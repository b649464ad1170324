"""Recipes: the scaling of each tensor, and the accumulation of each matmul."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from thunder_plugin_te.options import TeOptions

Scaling = Literal["tensor", "1x128", "128x128"]
Format = Literal["e4m3", "e5m2"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """The scaling of the tensors of a linear layer.

    Attributes:
        input, weight, gradient: the elements that share a scale: the whole tensor, blocks of a row, or squares. The
            gradient is that of the result.
        gradient_format: format of the gradient of the result; the other tensors are E4M3.
        split_forward, split_backward: whether matmuls add to float32 accumulators at intervals, which the tensor cores
            of Hopper and Ada do not.
    """

    input: Scaling
    weight: Scaling
    gradient: Scaling
    gradient_format: Format
    split_forward: bool
    split_backward: bool

    @property
    def key(self) -> str:
        """The recipe as a word for traces."""
        accumulation = f"{'split' if self.split_forward else 'fast'},{'split' if self.split_backward else 'fast'}"
        return f"{self.input},{self.weight},{self.gradient},{self.gradient_format},{accumulation}"


@lru_cache(maxsize=64)
def recipe_of_key(key: str) -> Recipe:
    """The recipe with this `Recipe.key`."""
    input, weight, gradient, form, *sums = key.split(",")
    return Recipe(input, weight, gradient, form, *[word == "split" for word in sums])  # type: ignore[arg-type]


def recipe_of(options: TeOptions) -> Recipe:
    """The recipe of the options; scales and formats are those of Transformer Engine's recipes of these names."""
    block = options.recipe == "block"
    form = options.fp8_format or ("e4m3" if block else "hybrid")
    gradient_format: Format = "e5m2" if form == "hybrid" else "e4m3"
    if block:  # required by `Float8BlockScaling`
        return Recipe("1x128", "128x128", "1x128", gradient_format, True, True)
    fast = options.fast_accumulation
    return Recipe("tensor", "tensor", "tensor", gradient_format, fast == "never", fast != "always")

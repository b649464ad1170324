"""Recipes: which tensor is scaled how, and which products add exactly."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from thunder_plugin_te.options import TeOptions

Scaling = Literal["tensor", "1x128", "128x128"]
Format = Literal["e4m3", "e5m2"]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What a linear layer does with its tensors.

    Attributes:
        input, weight, gradient: one scale for what: the whole tensor, blocks of a row, or squares. The gradient is that
            of the result.
        gradient_format: of the gradient of the result; all else is E4M3.
        split_forward, split_backward: whether products add up in float32 at intervals, which Hopper's and Ada's tensor
            cores do not do by themselves.
    """

    input: Scaling
    weight: Scaling
    gradient: Scaling
    gradient_format: Format
    split_forward: bool
    split_backward: bool

    @property
    def key(self) -> str:
        """All of it as a word that a trace can print."""
        accumulation = f"{'split' if self.split_forward else 'fast'},{'split' if self.split_backward else 'fast'}"
        return f"{self.input},{self.weight},{self.gradient},{self.gradient_format},{accumulation}"


@lru_cache(maxsize=64)
def recipe_of_key(key: str) -> Recipe:
    """The recipe with that `Recipe.key`."""
    input, weight, gradient, form, *sums = key.split(",")
    return Recipe(input, weight, gradient, form, *[word == "split" for word in sums])  # type: ignore[arg-type]


def recipe_of(options: TeOptions) -> Recipe:
    """What the options ask for; scales and formats are the defaults of Transformer Engine's recipes of these names."""
    block = options.recipe == "block"
    form = options.fp8_format or ("e4m3" if block else "hybrid")
    gradient_format: Format = "e5m2" if form == "hybrid" else "e4m3"
    if block:  # these products need it, says `Float8BlockScaling`
        return Recipe("1x128", "128x128", "1x128", gradient_format, True, True)
    fast = options.fast_accumulation
    return Recipe("tensor", "tensor", "tensor", gradient_format, fast == "never", fast != "always")

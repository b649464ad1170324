"""The executor: which linear layers Transformer Engine runs, and what becomes of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from thunder_core.executors import Claim, Claimed, Decision, Declined, OperatorExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_te import delayed, operations, products
from thunder_plugin_te.conditions import refusal
from thunder_plugin_te.layers import excluded, site_of, unmatched
from thunder_plugin_te.options import TeOptions
from thunder_plugin_te.recipes import Recipe, recipe_of


@dataclass(frozen=True)
class Quantized:
    """`torch.nn.functional.linear` as conversions of both tensors, which equal ones share, and their product."""

    recipe: Recipe

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The calls that take its place."""
        of_input, of_weight = _read_by_backward(input, weight)
        x = operations.quantize(input, self.recipe.input, "e4m3", of_input)
        w = operations.quantize(weight, self.recipe.weight, "e4m3", of_weight)
        return operations.linear(input, weight, bias, x, w, self.recipe.key)


@dataclass(frozen=True)
class Delayed:
    """The same in one call, which has a state."""

    recipe: Recipe
    site: str = ""

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The call that takes its place."""
        columns = {(True, True): "both", (True, False): "input", (False, True): "weight", (False, False): "none"}
        read = columns[_read_by_backward(input, weight)]
        return operations.linear_delayed(input, weight, bias, read, self.recipe.key, self.site)


def _read_by_backward(input: Tensor, weight: Tensor) -> tuple[bool, bool]:
    """Of which tensors backward needs the columns: of each for the gradient of the other."""
    recorded = torch.is_grad_enabled()
    return recorded and weight.requires_grad, recorded and input.requires_grad


def _converted(
    input: TensorProxy,
    weight: TensorProxy,
    bias: TensorProxy | None,
    input_parts: tuple[TensorProxy, ...],
    weight_parts: tuple[TensorProxy, ...],
    recipe: str,
) -> bool | str:
    """Products read bytes and scales in the order in which conversions write them, and have no gradients of scales."""
    parts = (*input_parts, *weight_parts)
    if any(part.requires_grad for part in parts):
        return "scales of quantized tensors have no gradient"
    return all(part.contiguous for part in parts) or "a quantized tensor is not contiguous"


class TeExecutor(OperatorExecutor):
    """Linear layers, which it rewrites before differentiation; and the operations that it rewrites them to.

    Attributes:
        options: as configured.
    """

    options: TeOptions

    def __init__(self, options: TeOptions | None = None) -> None:
        own = options or TeOptions()
        object.__setattr__(self, "options", own)
        rewrite = Delayed(recipe_of(own)) if own.recipe == "delayed" else Quantized(recipe_of(own))
        claims = [Claim(F.linear, check=self._check, rewrite=rewrite)]
        if own.recipe == "delayed":
            state = delayed.Sites(own)
            claims.append(Claim(operations.linear_delayed, delayed.run, derivative=delayed.PAIR, state=state))
        else:
            claims.append(Claim(operations.quantize, products.quantize))
            claims.append(Claim(operations.linear, products.run, _converted, products.PAIR))
        super().__init__("te", tuple(claims))

    def claim(self, bound: BoundSymbol) -> Decision:
        """By what the table says; layers also by their names."""
        answer = super().claim(bound)
        if not isinstance(answer, Claimed) or answer.rewrite is None:
            return answer
        reason = excluded(self.options, bound)
        if reason is not None:
            return Declined(self.name, reason)
        if isinstance(answer.rewrite, Delayed):
            return replace(answer, rewrite=replace(answer.rewrite, site=site_of(bound)))
        return answer

    def unmatched(self, lines: Sequence[BoundSymbol]) -> list[str]:
        """Of the patterns of layers that a configuration gives."""
        return unmatched(self.options, [line for line in lines if line.symbol.target is F.linear])

    def _check(self, input: TensorProxy, weight: TensorProxy, bias: TensorProxy | None = None) -> bool | str:
        return refusal(self.options, input, weight, bias) or True


@lru_cache(maxsize=64)
def from_options(options: TeOptions) -> TeExecutor:
    """The executor for these options; the same one for equal ones."""
    return TeExecutor(options)

"""The executor: the linear layers that Transformer Engine runs, and their rewrites."""

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
from thunder_plugin_te import delayed, matmuls, operations
from thunder_plugin_te.conditions import refusal
from thunder_plugin_te.layers import excluded, site_of, unmatched
from thunder_plugin_te.options import TeOptions
from thunder_plugin_te.recipes import Recipe, recipe_of


@dataclass(frozen=True)
class Quantized:
    """`torch.nn.functional.linear` as casts of both tensors, which are shared between layers, and a matmul."""

    recipe: Recipe

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The calls that replace it."""
        of_input, of_weight = _read_by_backward(input, weight)
        x = operations.quantize(input, self.recipe.input, "e4m3", of_input)
        w = operations.quantize(weight, self.recipe.weight, "e4m3", of_weight)
        return operations.linear(input, weight, bias, x, w, self.recipe.key)


@dataclass(frozen=True)
class Delayed:
    """The same as one call with a state."""

    recipe: Recipe
    site: str = ""

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The call that replaces it."""
        columns = {(True, True): "both", (True, False): "input", (False, True): "weight", (False, False): "none"}
        read = columns[_read_by_backward(input, weight)]
        return operations.linear_delayed(input, weight, bias, read, self.recipe.key, self.site)


def _read_by_backward(input: Tensor, weight: Tensor) -> tuple[bool, bool]:
    """The tensors whose columns backward needs: of each for the gradient of the other."""
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
    """Matmuls need the bytes and scales in the layout of casts, and there are no gradients of scales."""
    parts = (*input_parts, *weight_parts)
    if any(part.requires_grad for part in parts):
        return "scales of quantized tensors have no gradients"
    return all(part.contiguous for part in parts) or "a quantized tensor is not contiguous"


class TeExecutor(OperatorExecutor):
    """Rewrites linear layers before differentiation, and runs the operations of the rewrites.

    Attributes:
        options: as configured.
    """

    options: TeOptions

    def __init__(self, options: TeOptions | None = None) -> None:
        resolved = options or TeOptions()
        object.__setattr__(self, "options", resolved)
        rewrite = Delayed(recipe_of(resolved)) if resolved.recipe == "delayed" else Quantized(recipe_of(resolved))
        claims = [Claim(F.linear, check=self._check, rewrite=rewrite)]
        if resolved.recipe == "delayed":
            state = delayed.Sites(resolved)
            claims.append(Claim(operations.linear_delayed, delayed.run, derivative=delayed.PAIR, state=state))
        else:
            claims.append(Claim(operations.quantize, matmuls.quantize))
            claims.append(Claim(operations.linear, matmuls.run, _converted, matmuls.PAIR))
        super().__init__("te", tuple(claims))

    def claim(self, bound: BoundSymbol) -> Decision:
        """The decision of the table, and of the patterns of layers."""
        decision = super().claim(bound)
        if not isinstance(decision, Claimed) or decision.rewrite is None:
            return decision
        reason = excluded(self.options, bound)
        if reason is not None:
            return Declined(self.name, reason)
        if isinstance(decision.rewrite, Delayed):
            return replace(decision, rewrite=replace(decision.rewrite, site=site_of(bound)))
        return decision

    def unmatched(self, ops: Sequence[BoundSymbol]) -> list[str]:
        """The configured patterns of layers that match no layer."""
        return unmatched(self.options, [op for op in ops if op.symbol.target is F.linear])

    def _check(self, input: TensorProxy, weight: TensorProxy, bias: TensorProxy | None = None) -> bool | str:
        return refusal(self.options, input, weight, bias) or True


@lru_cache(maxsize=64)
def from_options(options: TeOptions) -> TeExecutor:
    """The executor for these options, the same object for equal options."""
    return TeExecutor(options)

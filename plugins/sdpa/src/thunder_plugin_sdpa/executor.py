"""The executor for scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F

from thunder_core.executors import Claim, Claimed, Decision, Declined, DerivativePair, OperatorExecutor
from thunder_core.executors.executor import executor_symbol
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.size import are_constant
from thunder_core.passes.operations import with_strides
from thunder_plugin_composites.attention_calls import with_fewer_heads
from thunder_plugin_sdpa.backends import Backend
from thunder_plugin_sdpa.call import Call
from thunder_plugin_sdpa.choice import MATH, Choice, choose
from thunder_plugin_sdpa.fakes import own_strides
from thunder_plugin_sdpa.formula import formula
from thunder_plugin_sdpa.options import SdpaOptions


class SdpaExecutor(OperatorExecutor):
    """Runs attention with PyTorch's kernels. Its table has one row, which selects from the table of kernels.

    Attributes:
        options: as configured.
    """

    rewrites = True
    options: SdpaOptions

    def __init__(self, options: SdpaOptions | None = None) -> None:
        object.__setattr__(self, "options", options or SdpaOptions())
        claim = Claim(F.scaled_dot_product_attention, check=self._check, derivative=self._pair)
        super().__init__("sdpa", (claim,), varying_sizes=True)

    def claim(self, bound: BoundSymbol) -> Decision:
        """A claim for the first kernel that supports the call, with the reasons of preferred ones."""
        decision = super().claim(bound)
        if isinstance(decision, Declined):
            return decision
        choice = self._choice(*bound.args, **bound.kwargs)
        if choice.backend is None:
            rewrite = formula(bound.output.stride)
            return Claimed(self.name, rewrite=rewrite, variant=MATH, passed_over=choice.passed)
        other = choice.backend.rewrite(Call.of(*bound.args, **bound.kwargs), bound.output.stride)
        if other is not None:
            return Claimed(self.name, rewrite=other, variant=choice.name or "", passed_over=choice.passed)
        run: Callable[..., Any] = choice.backend.run
        if not _has_strides_of(choice.backend, bound):
            if not are_constant(bound.output.stride):
                return Declined(self.name, "PyTorch's result has other strides, and they vary between calls")
            run = partial(_run_with_strides, run, bound.output.stride)
        symbol = executor_symbol(run, self.name, bound.symbol.tags, bound.symbol)
        return Claimed(self.name, symbol, variant=choice.name or "", passed_over=choice.passed)

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The derivative pair of the kernel; None for the formula, and for a call that is rewritten."""
        backend = self._choice(*bound.args, **bound.kwargs).backend
        if backend is None or backend.rewrite(Call.of(*bound.args, **bound.kwargs), bound.output.stride) is not None:
            return None
        if _has_strides_of(backend, bound):
            return backend.pair
        forward = partial(_forward_with_strides, backend.pair.forward, bound.output.stride)
        return DerivativePair(forward, backend.pair.backward)

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """The call with keys and values before they are repeated, if its kernel supports that."""
        before = self._choice(*bound.args, **bound.kwargs).backend if self.options.grouped else None
        if before is None or not before.groups:
            return None
        rewrite = with_fewer_heads(bound, producers)
        if rewrite is None or self._choice(*rewrite.args, **rewrite.kwargs).backend is not before:
            return None
        return rewrite

    def _check(self, *args: Any, **kwargs: Any) -> bool | str:
        choice = self._choice(*args, **kwargs)
        return choice.name is not None or choice.reasons

    def _pair(self, *args: Any, **kwargs: Any) -> DerivativePair | None:
        backend = self._choice(*args, **kwargs).backend
        return None if backend is None else backend.pair

    def _choice(self, *args: Any, **kwargs: Any) -> Choice:
        return choose(Call.of(*args, **kwargs), self.options.backends)


@lru_cache(maxsize=64)
def from_options(options: SdpaOptions) -> SdpaExecutor:
    """The executor for these options, the same object for equal options."""
    return SdpaExecutor(options)


def _has_strides_of(backend: Backend, bound: BoundSymbol) -> bool:
    """Whether the kernel's result has the strides of the trace, which are those of the kernel that PyTorch chooses."""
    wanted: tuple[int, ...] = bound.output.stride
    return own_strides(backend.run, Call.of(*bound.args, **bound.kwargs).anonymous()) == wanted


def _run_with_strides(run: Callable[..., torch.Tensor], stride: tuple[int, ...], *args: Any, **kwargs: Any) -> Any:
    return with_strides(run(*args, **kwargs), stride)


def _forward_with_strides(
    forward: Callable[..., Any], stride: tuple[int, ...], *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, tuple[Any, ...]]:
    output, residuals = forward(*args, **kwargs)
    return with_strides(output, stride), residuals

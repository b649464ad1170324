"""The executor: a table of the operations for which cuDNN has graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial

import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, Claimed, Decision, DerivativePair, OperatorExecutor
from thunder_core.executors.executor import executor_symbol
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_plugin_composites.attention_calls import with_fewer_heads
from thunder_plugin_cudnn import attention, layer_norm, rms_norm
from thunder_plugin_cudnn.attention_support import Support
from thunder_plugin_cudnn.layouts import ordered_strides
from thunder_plugin_cudnn.options import CudnnOptions


class CudnnExecutor(OperatorExecutor):
    """Runs attention and normalizations with cuDNN's graphs.

    Attributes:
        options: as configured.
        device: the type of device for cuDNN.
    """

    rewrites = True
    options: CudnnOptions
    device: str

    def __init__(self, options: CudnnOptions | None = None, device: str = "cuda") -> None:
        options = options or CudnnOptions()
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "device", device)
        pair = attention.DETERMINISTIC_PAIR if options.deterministic else attention.PAIR
        support = Support(options.dropout, options.deterministic, device)
        claims = {
            "sdpa": (Claim(F.scaled_dot_product_attention, attention.run, support, pair),),
            "layer_norm": (layer_norm.claim(F.layer_norm, device),),
            "rms_norm": (rms_norm.claim(F.rms_norm, device), rms_norm.composite_claim(composites.rms_norm, device)),
        }
        super().__init__("cudnn", tuple([claim for name in options.operations for claim in claims[name]]))

    def claim(self, bound: BoundSymbol) -> Decision:
        """The decision of the table; attention writes its result with the strides of the trace."""
        decision = super().claim(bound)
        if not isinstance(decision, Claimed) or not _needs_strides(bound):
            return decision
        run = partial(attention.run_with_strides, bound.output.stride)
        return replace(decision, implementation=executor_symbol(run, self.name, bound.symbol.tags, bound.symbol))

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The derivative of the table; attention writes its result with the strides of the trace."""
        pair = super().derivative(bound)
        if pair is None or not _needs_strides(bound):
            return pair
        stride = bound.output.stride
        forward = partial(attention.forward_with_strides, stride)
        return DerivativePair(forward, pair.backward, partial(attention.fake_with_strides, stride))

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        """Attention with the keys and values before they are repeated."""
        if not self.options.grouped or Tag.ATTENTION not in bound.symbol.tags or not self._takes(bound):
            return None
        rewrite = with_fewer_heads(bound, producers)
        return rewrite if rewrite is not None and self._takes(rewrite) else None

    def _takes(self, bound: BoundSymbol) -> bool:
        return isinstance(super().claim(bound), Claimed)


def _needs_strides(bound: BoundSymbol) -> bool:
    """Whether the strides of the result, which are those of PyTorch's kernel, differ from the order of the query."""
    if Tag.ATTENTION not in bound.symbol.tags:
        return False
    wanted: tuple[int, ...] = bound.output.stride
    return wanted != ordered_strides(bound.output.shape, bound.args[0].stride)


@lru_cache(maxsize=64)
def from_options(options: CudnnOptions) -> CudnnExecutor:
    """The executor for these options, the same object for equal options."""
    return CudnnExecutor(options)

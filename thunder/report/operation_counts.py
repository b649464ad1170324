"""The number of arithmetic operations of an op, as PyTorch counts them."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder_core.autodiff.derivatives.derivative import PLAIN
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import modes_for_fakes
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import PROXY_TYPES, TensorProxy
from thunder_core.ir.size import as_constant
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.tracing.fake_tensors import ObservingFakeMode, make_fake

_COUNTED: Final = frozenset({Tag.MATMUL, Tag.ATTENTION, Tag.OPAQUE})
_cache: Final = BoundedCache[int | None](4096)


def count_operations(bound: BoundSymbol) -> int | None:
    """Multiplications and additions of one run of an op, as `torch.utils.flop_counter` counts them.

    These counters know matrix products, convolutions and attention. None for all other ops, for ops that cannot run on
    fake tensors, and for the backward of an executor.
    """
    symbol = bound.symbol.reference or bound.symbol
    if Tag.BACKWARD in bound.symbol.tags or Tag.LOCAL in symbol.tags or not (symbol.tags & _COUNTED):
        return None
    if bound.varies():
        bound = bound.with_sizes(as_constant)
    key = call_key(bound, PLAIN)
    return None if key is None else _cache.get(key, lambda: _count(bound))


def _count(bound: BoundSymbol) -> int | None:
    leaves = list(iterate_leaves((bound.args, bound.kwargs)))
    if any(isinstance(leaf, Trace) or (isinstance(leaf, PROXY_TYPES) and not _dense(leaf)) for leaf in leaves):
        return None
    from torch.utils.flop_counter import (  # imports Triton; only reports need it
        FlopCounterMode,
        sdpa_backward_flop_count,
        sdpa_flop_count,
    )

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    def attention_backward(cotangent: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_backward_flop_count(cotangent, query, key, value))

    mode = ObservingFakeMode()
    counter = FlopCounterMode(
        display=False,
        custom_mapping={  # PyTorch counts the attention kernels of GPUs alone
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
        },
    )

    def value(leaf: Any) -> Any:
        return make_fake(mode, leaf) if isinstance(leaf, TensorProxy) else leaf

    args, kwargs = map_leaves(value, bound.args), map_leaves(value, bound.kwargs)
    with torch.random.fork_rng(devices=[]), modes_for_fakes(PLAIN), mode, counter:
        try:
            (bound.symbol.reference or bound.symbol).target(*args, **kwargs)
        except Exception:  # noqa: BLE001 - the number is then unknown
            return None
    return counter.get_total_flops() or None


def _dense(leaf: Any) -> bool:
    return isinstance(leaf, TensorProxy) and leaf.layout is torch.strided

"""Run-time functions of ``torch.nn.functional.scaled_dot_product_attention``, forward and backward."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.passes.operations import with_strides
from thunder_plugin_cudnn.attention_graphs import Slot, attention_backward, attention_forward
from thunder_plugin_cudnn.layouts import Layout, aligned, canonical_layout, layout_of, ordered_strides, unfit_strides
from thunder_plugin_cudnn.masks import as_bias
from thunder_plugin_cudnn.plans import execute

SEEDS: Final = 2**31


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
    return _forward(True, False, None, *args, **kwargs)[0]


def run_with_strides(stride: tuple[int, ...], *args: Any, **kwargs: Any) -> Tensor:
    """`run` with a result of these strides."""
    return _forward(True, False, stride, *args, **kwargs)[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    return _forward(True, True, None, *args, **kwargs)


def forward_with_strides(stride: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward` with a result of these strides."""
    return _forward(True, True, stride, *args, **kwargs)


def fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    return _forward(False, True, None, *args, **kwargs)


def fake_with_strides(stride: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward_with_strides`."""
    return _forward(False, True, stride, *args, **kwargs)


def _forward(
    compute: bool,
    differentiated: bool,
    stride: tuple[int, ...] | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> tuple[Tensor, tuple[Any, ...]]:
    """cuDNN determines the numbers of heads from the shapes, and supports any ``stride`` of the result."""
    shape, strides, rows = _results(query.dtype, query.shape, value.shape, query.stride(), stride)
    output = query.new_empty_strided(shape, strides)
    statistics = query.new_empty(rows, dtype=torch.float32) if differentiated else None
    philox = torch.randint(SEEDS, (2,), device=query.device) if dropout_p else None
    scale = 1 / math.sqrt(query.shape[3]) if scale is None else scale
    if compute:
        tensors: dict[int, Tensor | None] = {
            Slot.QUERY: aligned(query),
            Slot.KEY: aligned(key),
            Slot.VALUE: aligned(value),
            Slot.OUTPUT: output,
            Slot.BIAS: as_bias(attn_mask, query),
        }
        layouts = [None if tensor is None else layout_of(tensor) for tensor in tensors.values()]
        description = (*layouts, is_causal, scale, dropout_p, differentiated)
        tensors[Slot.STATISTICS] = statistics
        if philox is not None:
            tensors |= _seeds(philox)
        execute(attention_forward, query.device, description, tensors)
    if stride is not None:
        output = with_strides(output, stride)
    return output, (query, key, value, attn_mask, output, statistics, philox, dropout_p, is_causal, scale)


@lru_cache(maxsize=4096)
def _results(
    dtype: torch.dtype, query: torch.Size, value: torch.Size, of_query: tuple[int, ...], wanted: tuple[int, ...] | None
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the output (``wanted`` if cuDNN supports them), and shape of the statistics."""
    shape, rows = (*query[:3], value[3]), (*query[:3], 1)
    if wanted is not None and unfit_strides("", canonical_layout(dtype, shape, wanted)) is None:
        return shape, wanted, rows
    return shape, ordered_strides(shape, of_query), rows


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of query, key, value and the mask; deterministic if PyTorch requires deterministic algorithms."""
    return _backward(torch.are_deterministic_algorithms_enabled(), residuals, cotangents, wanted)


def deterministic_backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """`backward`, always deterministic."""
    return _backward(True, residuals, cotangents, wanted)


def _backward(
    deterministic: bool, residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """The bias is computed again from the mask: the mask is shared by all layers, but its copies are not."""
    query, key, value, mask, output, statistics, philox, dropout, causal, scale = residuals
    if not _fits(output):
        output = output.contiguous()
    given = [aligned(tensor) for tensor in (query, key, value)]
    gradients = [torch.empty_like(tensor) for tensor in (query, key, value)]
    (cotangent,) = cotangents
    if not _fits(cotangent):
        cotangent = with_strides(cotangent, output.stride())
    cotangent, bias = aligned(cotangent), as_bias(mask, query)
    of_bias = torch.empty_like(bias) if bias is not None and wanted[3:] == (True,) else None
    layouts = [layout_of(tensor) for tensor in (*given, output, cotangent)]
    of_inputs = tuple([layout_of(tensor) for tensor in gradients])
    of_mask = tuple([None if tensor is None else layout_of(tensor) for tensor in (bias, of_bias)])
    tensors: dict[int, Tensor | None] = {
        Slot.BIAS: bias,
        Slot.OUTPUT: output,
        Slot.STATISTICS: statistics,
        Slot.COTANGENT: cotangent,
        Slot.BIAS_GRADIENT: of_bias,
        **dict(zip((Slot.QUERY, Slot.KEY, Slot.VALUE), given)),
        **dict(zip((Slot.QUERY_GRADIENT, Slot.KEY_GRADIENT, Slot.VALUE_GRADIENT), gradients)),
    }
    if philox is not None:
        tensors |= _seeds(philox)
    description = (*layouts, of_inputs, *of_mask, causal, scale, dropout, deterministic)
    execute(attention_backward, query.device, description, tensors)
    results = (*gradients, None if of_bias is None else of_bias.view(mask.shape))
    return tuple([gradient if want else None for gradient, want in zip(results, wanted)])


def _fits(tensor: Tensor) -> bool:
    """Whether cuDNN can read the tensor without a copy."""
    return _fits_layout(layout_of(tensor))


@lru_cache(maxsize=4096)
def _fits_layout(layout: Layout) -> bool:
    return unfit_strides("", layout) is None


def _seeds(philox: Tensor) -> dict[int, Tensor]:
    """The seed and offset of the random generator, with which backward draws the numbers of forward again."""
    return {Slot.SEED: philox[:1], Slot.OFFSET: philox[1:]}


PAIR: Final = DerivativePair(forward, backward, fake)
DETERMINISTIC_PAIR: Final = DerivativePair(forward, deterministic_backward, fake)

"""The graphs of attention. Their descriptions are layouts and numbers, in the order of the functions' parameters."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch

from thunder_plugin_cudnn.describing import input_tensor, set_output
from thunder_plugin_cudnn.layouts import Layout


class Slot(IntEnum):
    """The IDs of the tensors in both graphs."""

    QUERY = 1
    KEY = 2
    VALUE = 3
    BIAS = 4
    SEED = 5
    OFFSET = 6
    OUTPUT = 7
    STATISTICS = 8
    """The logsumexp of each row, float32 (batch, heads, queries, 1), dense."""
    COTANGENT = 9
    QUERY_GRADIENT = 10
    KEY_GRADIENT = 11
    VALUE_GRADIENT = 12
    BIAS_GRADIENT = 13


def attention_forward(
    graph: Any,
    query: Layout,
    key: Layout,
    value: Layout,
    output: Layout,
    bias: Layout | None,
    causal: bool,
    scale: float,
    dropout: float,
    statistics: bool,
) -> None:
    """The graph of attention; with ``statistics``, it also writes those that backward needs."""
    inputs = _inputs(graph, query, key, value)
    options = _options(graph, bias, causal, scale, dropout)
    result, rows = graph.sdpa(**inputs, **options, generate_stats=statistics, name="attention")
    set_output(result, Slot.OUTPUT, output)
    if statistics:
        set_output(rows, Slot.STATISTICS, statistics_layout(query))


def attention_backward(
    graph: Any,
    query: Layout,
    key: Layout,
    value: Layout,
    output: Layout,
    cotangent: Layout,
    gradients: tuple[Layout, Layout, Layout],
    bias: Layout | None,
    bias_gradient: Layout | None,
    causal: bool,
    scale: float,
    dropout: float,
    deterministic: bool,
) -> None:
    """The graph of the gradients of query, key and value, and of the bias if needed."""
    inputs = _inputs(graph, query, key, value)
    options = _options(graph, bias, causal, scale, dropout)
    if bias_gradient is not None:
        options["dBias"] = input_tensor(graph, Slot.BIAS_GRADIENT, bias_gradient)
    results = graph.sdpa_backward(
        **inputs,
        o=input_tensor(graph, Slot.OUTPUT, output),
        dO=input_tensor(graph, Slot.COTANGENT, cotangent),
        stats=input_tensor(graph, Slot.STATISTICS, statistics_layout(query)),
        use_deterministic_algorithm=deterministic,
        name="attention_backward",
        **options,
    )
    numbers = (Slot.QUERY_GRADIENT, Slot.KEY_GRADIENT, Slot.VALUE_GRADIENT)
    for tensor, number, layout in zip(results, numbers, gradients):
        set_output(tensor, number, layout)


def statistics_layout(query: Layout) -> Layout:
    """The layout of the statistics."""
    batch, heads, queries, _ = query[1]
    return torch.float32, (batch, heads, queries, 1), (heads * queries, queries, 1, 1)


def _inputs(graph: Any, query: Layout, key: Layout, value: Layout) -> dict[str, Any]:
    return {
        "q": input_tensor(graph, Slot.QUERY, query),
        "k": input_tensor(graph, Slot.KEY, key),
        "v": input_tensor(graph, Slot.VALUE, value),
    }


def _options(graph: Any, bias: Layout | None, causal: bool, scale: float, dropout: float) -> dict[str, Any]:
    """Common arguments of both graphs. Query ``i`` attends to keys up to ``i``: the default diagonal starts at the top
    left.
    """
    options: dict[str, Any] = {"attn_scale": scale}
    if bias is not None:
        options["bias"] = input_tensor(graph, Slot.BIAS, bias)
    if causal:
        options["diagonal_band_right_bound"] = 0
    if dropout:
        one = (torch.int64, (1, 1, 1, 1), (1, 1, 1, 1))
        options["dropout"] = (dropout, input_tensor(graph, Slot.SEED, one), input_tensor(graph, Slot.OFFSET, one))
    return options

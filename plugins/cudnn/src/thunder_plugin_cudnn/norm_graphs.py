"""The graphs of normalizations of contiguous rows."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Literal

import torch

from thunder_plugin_cudnn import library
from thunder_plugin_cudnn.describing import data_type, input_tensor, set_output
from thunder_plugin_cudnn.layouts import Layout
from thunder_plugin_cudnn.plan import Constant

Kind = Literal["layernorm", "rmsnorm"]
"""The frontend's names."""


class Slot(IntEnum):
    """The IDs of the tensors in both graphs."""

    INPUT = 1
    WEIGHT = 2
    BIAS = 3
    EPSILON = 4
    OUTPUT = 5
    MEAN = 6
    INVERSE = 7
    """The inverse root of the variance, or of the mean of squares, plus epsilon; float32 (rows,), like the mean."""
    COTANGENT = 8
    INPUT_GRADIENT = 9
    WEIGHT_GRADIENT = 10
    BIAS_GRADIENT = 11


def norm_forward(
    graph: Any,
    kind: Kind,
    rows: int,
    size: int,
    dtype: torch.dtype,
    of_weight: torch.dtype | None,
    of_bias: torch.dtype | None,
    eps: float,
    statistics: bool,
) -> Mapping[int, Constant]:
    """The graph for ``rows`` of ``size`` elements; with ``statistics``, it also writes those that backward needs.

    A missing weight, or a missing bias of ``layernorm``, is a constant of the graph, because older frontends require
    them. A missing tensor has no dtype.
    """
    phase = library.frontend().norm_forward_phase
    constants: dict[int, Constant] = {Slot.EPSILON: Constant(eps, 1, torch.float32, on_host=True)}
    epsilon = graph.tensor(
        name="epsilon", dim=[1] * 4, stride=[1] * 4, data_type=data_type(torch.float32), is_pass_by_value=True
    ).set_uid(Slot.EPSILON)
    weight = input_tensor(graph, Slot.WEIGHT, _parameter(size, of_weight or dtype))
    if of_weight is None:
        constants[Slot.WEIGHT] = Constant(1, size, dtype)
    bias = None
    if kind == "layernorm":
        bias = input_tensor(graph, Slot.BIAS, _parameter(size, of_bias or of_weight or dtype))
        if of_bias is None:
            constants[Slot.BIAS] = Constant(0, size, of_weight or dtype)
    output, *rest = getattr(graph, kind)(
        norm_forward_phase=phase.TRAINING if statistics else phase.INFERENCE,
        input=input_tensor(graph, Slot.INPUT, _rows(rows, size, dtype)),
        scale=weight,
        bias=bias,
        epsilon=epsilon,
        name=kind,
    )
    set_output(output, Slot.OUTPUT, _rows(rows, size, dtype))
    if statistics:
        numbers = (Slot.MEAN, Slot.INVERSE) if kind == "layernorm" else (Slot.INVERSE,)
        for tensor, number in zip(rest, numbers):
            set_output(tensor, number, _rows(rows, 1, torch.float32))
    return constants


def norm_backward(
    graph: Any,
    kind: Kind,
    rows: int,
    size: int,
    dtype: torch.dtype,
    of_weight: torch.dtype | None,
) -> Mapping[int, Constant]:
    """The graph of the gradients of the rows, of the weight, and of the bias of ``layernorm``."""
    weight = input_tensor(graph, Slot.WEIGHT, _parameter(size, of_weight or dtype))
    arguments = {
        "grad": input_tensor(graph, Slot.COTANGENT, _rows(rows, size, dtype)),
        "input": input_tensor(graph, Slot.INPUT, _rows(rows, size, dtype)),
        "scale": weight,
        "inv_variance": input_tensor(graph, Slot.INVERSE, _rows(rows, 1, torch.float32)),
        "name": f"{kind}_backward",
    }
    if kind == "layernorm":
        mean = input_tensor(graph, Slot.MEAN, _rows(rows, 1, torch.float32))
        results = graph.layernorm_backward(**arguments, mean=mean)
    else:
        results = graph.rmsnorm_backward(**arguments, has_dbias=False)
    set_output(results[0], Slot.INPUT_GRADIENT, _rows(rows, size, dtype))
    set_output(results[1], Slot.WEIGHT_GRADIENT, _parameter(size, of_weight or dtype))
    if kind == "layernorm":
        set_output(results[2], Slot.BIAS_GRADIENT, _parameter(size, of_weight or dtype))
    return {} if of_weight is not None else {Slot.WEIGHT: Constant(1, size, dtype)}


def _rows(rows: int, size: int, dtype: torch.dtype) -> Layout:
    return dtype, (rows, size, 1, 1), (size, 1, 1, 1)


def _parameter(size: int, dtype: torch.dtype) -> Layout:
    return dtype, (1, size, 1, 1), (size, 1, 1, 1)

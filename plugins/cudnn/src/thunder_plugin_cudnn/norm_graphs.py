"""The graphs of normalizations: of rows that lie one after the other."""

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
"""As the frontend calls them."""


class Slot(IntEnum):
    """The numbers of the tensors, in both graphs."""

    INPUT = 1
    WEIGHT = 2
    BIAS = 3
    EPSILON = 4
    OUTPUT = 5
    MEAN = 6
    INVERSE = 7
    """One over the root of the variance, or of the mean of squares, plus epsilon; (rows,) of float32, as the mean."""
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
    """``rows`` of ``size`` elements; with the statistics that backward needs where they are asked for.

    A weight, or a bias of ``layernorm``, that is not given (no dtype) is a constant of the graph: older frontends
    require them.
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
    found, *rest = getattr(graph, kind)(
        norm_forward_phase=phase.TRAINING if statistics else phase.INFERENCE,
        input=input_tensor(graph, Slot.INPUT, _rows(rows, size, dtype)),
        scale=weight,
        bias=bias,
        epsilon=epsilon,
        name=kind,
    )
    set_output(found, Slot.OUTPUT, _rows(rows, size, dtype))
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
    """Gradients of the rows and of the weight, and of the bias of ``layernorm``."""
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
        found = graph.layernorm_backward(**arguments, mean=mean)
    else:
        found = graph.rmsnorm_backward(**arguments, has_dbias=False)
    set_output(found[0], Slot.INPUT_GRADIENT, _rows(rows, size, dtype))
    set_output(found[1], Slot.WEIGHT_GRADIENT, _parameter(size, of_weight or dtype))
    if kind == "layernorm":
        set_output(found[2], Slot.BIAS_GRADIENT, _parameter(size, of_weight or dtype))
    return {} if of_weight is not None else {Slot.WEIGHT: Constant(1, size, dtype)}


def _rows(rows: int, size: int, dtype: torch.dtype) -> Layout:
    return dtype, (rows, size, 1, 1), (size, 1, 1, 1)


def _parameter(size: int, dtype: torch.dtype) -> Layout:
    return dtype, (1, size, 1, 1), (size, 1, 1, 1)

"""Tensors of a graph."""

from __future__ import annotations

from typing import Any

import torch

from thunder_plugin_cudnn import library
from thunder_plugin_cudnn.layouts import Layout


def input_tensor(graph: Any, number: int, layout: Layout) -> Any:
    """Add an input to the graph; its tensor is passed by this ID."""
    dtype, shape, stride = layout
    tensor = graph.tensor(name=f"input{number}", dim=list(shape), stride=list(stride), data_type=data_type(dtype))
    return tensor.set_uid(number)


def set_output(tensor: Any, number: int, layout: Layout) -> None:
    """Make the result of an operation an output of the graph, whose tensor is passed by this ID."""
    dtype, shape, stride = layout
    tensor.set_output(True).set_dim(list(shape)).set_stride(list(stride)).set_data_type(data_type(dtype))
    tensor.set_uid(number)


def data_type(dtype: torch.dtype) -> Any:
    """cuDNN's name of a dtype."""
    return getattr(library.frontend().data_type, _NAMES[dtype])


_NAMES = {
    torch.float16: "HALF",
    torch.bfloat16: "BFLOAT16",
    torch.float32: "FLOAT",
    torch.int64: "INT64",
}

"""The tensors of a line, as lists."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import from_fake


def tensor_inputs_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.inputs`."""
    return [proxy for proxy in bound.inputs() if type(proxy) is TensorProxy]


def tensor_outputs_of(bound: BoundSymbol) -> list[TensorProxy]:
    """The tensors among `BoundSymbol.outputs`."""
    return [proxy for proxy in bound.outputs() if type(proxy) is TensorProxy]


def tensors_written_by(bound: BoundSymbol) -> list[TensorProxy]:
    """The arguments whose storage the line writes."""
    mutates = bound.effects.mutates
    return [proxy for proxy in tensor_inputs_of(bound) if proxy.name in mutates] if mutates else []


def metadata_of(tensor: torch.Tensor | TensorProxy) -> tuple[Any, ...]:
    """Shape, strides, dtype and device, equal for a proxy and for a tensor that it stands for."""
    stride = tensor.stride() if isinstance(tensor, torch.Tensor) else tensor.stride
    return from_fake(tuple(tensor.shape)), from_fake(tuple(stride)), tensor.dtype, tensor.device


def written_storages(lines: Iterable[BoundSymbol]) -> frozenset[int]:
    """Numbers of the storages that lines write."""
    return frozenset([proxy.storage for bound in lines for proxy in tensors_written_by(bound)])

"""Copies of inputs that are overwritten before backward runs."""

from __future__ import annotations

from dataclasses import replace

import torch

from thunder_core.autodiff.memory import extent_bytes
from thunder_core.errors import SizeVariesError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import are_constant, from_fake, on_fakes
from thunder_core.symbols.registry import registry


def copy_of_input(tensor: TensorProxy, builder: Builder) -> tuple[tuple[BoundSymbol, ...], TensorProxy]:
    """Lines that copy ``tensor``, and the copy: of the same sizes and strides, in a storage of its own."""
    copy = replace(
        tensor, name=builder.name(f"{tensor.name}_copy"), storage=builder.new_storage(), offset=0, requires_grad=False
    )
    clone, as_strided = registry.symbol_named("torch.clone"), registry.symbol_named("torch.as_strided")
    if _clone_keeps_strides(tensor):
        return (BoundSymbol(clone, (tensor,), {}, copy),), copy
    # A clone closes gaps, and copies elements that lie on each other one by one: the memory below is cloned instead.
    length = extent_bytes(replace(tensor, offset=0)) // tensor.dtype.itemsize
    memory = replace(tensor, name=builder.name(f"{tensor.name}_memory"), shape=(length,), stride=(1,))
    cloned = replace(copy, name=builder.name(f"{tensor.name}_memory_copy"), shape=(length,), stride=(1,))
    return (
        BoundSymbol(as_strided, (tensor, (length,), (1,)), {}, memory),
        BoundSymbol(clone, (memory,), {}, cloned),
        BoundSymbol(as_strided, (cloned, tensor.shape, tensor.stride), {}, copy),
    ), copy


def _clone_keeps_strides(tensor: TensorProxy) -> bool:
    """Sparse tensors have none.

    Raises:
        SizeVariesError: it does not, and has sizes that vary, so that its memory does as well.
    """
    if tensor.layout is not torch.strided:
        return True
    clone = torch.empty_strided(*on_fakes((tensor.shape, tensor.stride)), dtype=tensor.dtype, device="meta").clone()
    keeps = from_fake(clone.stride()) == tensor.stride
    if not keeps and not are_constant((*tensor.shape, *tensor.stride)):
        raise SizeVariesError(f"{tensor.name}, which is written, is a part of a larger memory")
    return bool(keeps)

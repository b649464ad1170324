"""Copies of values to the memory of the host and back, which run beside the ops of a program.

Each device has one CUDA stream for copies, beside the stream on which the program runs. The tensors are allocated on
the stream of the program, which waits for a copy before it reads the result or reuses the memory.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch

from thunder_core.ir.symbol import Symbol


@cache
def _stream(device: torch.device) -> Any:
    return torch.cuda.Stream(device)


def offload(tensor: torch.Tensor, *sent: torch.Tensor) -> torch.Tensor:
    """Start to copy a tensor to pinned memory of the host; returns the copy, with the same strides.

    Args:
        sent: the tensor of the call before, which must stay alive until its copy has ended; that is waited for first.
    """
    if tensor.device.type != "cuda":
        return tensor.detach().clone(memory_format=torch.preserve_format)
    copy = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=True)
    copies, ops = _stream(tensor.device), torch.cuda.current_stream(tensor.device)
    if sent:
        ops.wait_stream(copies)
    copies.wait_stream(ops)
    with torch.cuda.stream(copies):
        copy.copy_(tensor.detach(), non_blocking=True)
    return copy


def offloaded(copy: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """``copy``, the result of `offload` of ``tensor``. What runs next may reuse the memory of ``tensor``."""
    if tensor.device.type == "cuda":
        torch.cuda.current_stream(tensor.device).wait_stream(_stream(tensor.device))
    return copy


def prefetch(copy: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Start to copy an offloaded tensor back; `prefetched` returns the result once it is there."""
    if device.type != "cuda":
        return copy.clone(memory_format=torch.preserve_format)
    tensor = torch.empty_strided(copy.size(), copy.stride(), dtype=copy.dtype, device=device)
    copies = _stream(tensor.device)
    copies.wait_stream(torch.cuda.current_stream(tensor.device))  # ops may still use the memory that is reused
    with torch.cuda.stream(copies):
        tensor.copy_(copy, non_blocking=True)
    return tensor


def prefetched(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, a result of `prefetch`: ops that run next may read it."""
    if tensor.device.type == "cuda":
        torch.cuda.current_stream(tensor.device).wait_stream(_stream(tensor.device))
    return tensor


OFFLOAD: Final = Symbol("thunder_core.symbols.host_memory.offload", offload)
OFFLOADED: Final = Symbol("thunder_core.symbols.host_memory.offloaded", offloaded)
PREFETCH: Final = Symbol("thunder_core.symbols.host_memory.prefetch", prefetch)
PREFETCHED: Final = Symbol("thunder_core.symbols.host_memory.prefetched", prefetched)

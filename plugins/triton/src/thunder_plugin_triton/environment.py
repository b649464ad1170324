"""The devices on which the kernels of this process run: GPUs, or the CPU with Triton's interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch
import triton


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    """A function with the decorator of the kernels, whose type shows whether Triton interprets or compiles."""


INTERPRETED: Final = not isinstance(_nothing, triton.JITFunction)
"""Whether kernels run on CPU tensors with NumPy. Triton reads ``TRITON_INTERPRET=1`` when it is imported."""

LEAST_CAPABILITY: Final = (8, 0)


@cache
def refusal_of_device(device: torch.device) -> str | None:
    """The reason why kernels do not run on tensors of this device; None if they do."""
    if device.type == "cpu":
        if INTERPRETED:
            return None
        return "tensors on cpu: Triton kernels run on CUDA (TRITON_INTERPRET=1 runs them in Triton's interpreter)"
    if device.type != "cuda":
        return f"tensors on {device.type}: Triton kernels run on CUDA"
    if INTERPRETED:
        return "TRITON_INTERPRET=1: Triton's interpreter is for tensors on cpu"
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    capability = torch.cuda.get_device_capability(device)
    if capability >= LEAST_CAPABILITY:
        return None
    actual, least = (".".join(map(str, each)) for each in (capability, LEAST_CAPABILITY))
    return f"compute capability {actual}: at least {least} is needed"


@cache
def processors(device: torch.device) -> int:
    """The number of multiprocessors; 2 for the interpreter, so that sums over programs have several terms."""
    if INTERPRETED:
        return 2
    count: Any = torch.cuda.get_device_properties(device).multi_processor_count
    return int(count)

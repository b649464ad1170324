"""Where the kernels of this process run: on GPUs, or in Triton's interpreter."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch
import triton


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    """Decorated like the kernels, to see what Triton makes of them."""


INTERPRETED: Final = not isinstance(_nothing, triton.JITFunction)
"""Whether kernels run on CPU tensors, by NumPy. ``TRITON_INTERPRET=1`` decides it when Triton is first imported."""

LEAST_CAPABILITY: Final = (8, 0)


@cache
def refusal_of_device(device: torch.device) -> str | None:
    """Why kernels do not run on tensors of this device; None if they do."""
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
    found = torch.cuda.get_device_capability(device)
    if found >= LEAST_CAPABILITY:
        return None
    own, least = (".".join(map(str, each)) for each in (found, LEAST_CAPABILITY))
    return f"compute capability {own}: at least {least} is needed"


@cache
def processors(device: torch.device) -> int:
    """Number of multiprocessors; 2 for the interpreter, so that sums over programs have several terms."""
    if INTERPRETED:
        return 2
    count: Any = torch.cuda.get_device_properties(device).multi_processor_count
    return int(count)

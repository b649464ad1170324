"""Eager with other kernels: right programs that round differently, to see how far rounding alone takes the losses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

Choice = Callable[[], contextlib.AbstractContextManager[Any]]


def _attention(*backends: str) -> Choice:
    """Scaled dot product attention by the first of these that takes the arguments."""

    def choose() -> contextlib.AbstractContextManager[Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        return sdpa_kernel([getattr(SDPBackend, name) for name in backends], set_priority=True)

    return choose


def _other_blas() -> contextlib.AbstractContextManager[Any]:
    import torch

    now = str(torch.backends.cuda.preferred_blas_library()).lower()
    torch.backends.cuda.preferred_blas_library("cublas" if "cublaslt" in now else "cublaslt")
    return contextlib.nullcontext()


def _without_one_dnn() -> contextlib.AbstractContextManager[Any]:
    import torch

    return torch.backends.mkldnn.flags(enabled=False)


def _without_cudnn() -> contextlib.AbstractContextManager[Any]:
    import torch

    # Convolutions; attention is a row of its own, so it keeps to the first choice that is left.
    return torch.backends.cudnn.flags(enabled=False)


# The first choice for attention is cuDNN's on a Hopper GPU, and the fused one on a CPU.
OTHER_KERNELS: dict[str, dict[str, Choice]] = {
    "cuda": {
        "flash attention": _attention("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"),
        "the other of cuBLAS and cuBLASLt": _other_blas,
        "memory-efficient attention": _attention("EFFICIENT_ATTENTION", "FLASH_ATTENTION", "MATH"),
        "no cuDNN": _without_cudnn,
    },
    "cpu": {
        "attention in parts": _attention("MATH"),
        "no oneDNN": _without_one_dnn,
    },
}
"""Samples of the noise, by device and in the order in which they are taken."""

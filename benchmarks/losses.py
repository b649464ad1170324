"""Comparison of an implementation's losses with eager's.

Two correct programs that round differently diverge. The divergence is measured by running eager again with other
kernels (`OTHER_KERNELS`). The losses of an implementation may differ from eager's by twice the largest difference of
these runs, or by the resolution of the precision, whichever is larger.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

NOISE_LIMIT = 2
FLOAT8_LIMIT = 1
"""Largest difference of the last losses of a training in float8, in percent."""
RESOLUTION = {"bf16-true": 2**-7, "bf16-autocast": 2**-7, "float32": 2**-12}
"""Relative resolution by precision. For bfloat16, in which a ``bf16-true`` loss is computed, it is the largest relative
distance of two neighboring numbers. A float32 loss is a sum of many rounded terms: half of the bits.
"""

Kernels = Callable[[], contextlib.AbstractContextManager[Any]]


def largest_difference(losses: Sequence[float], expected: Sequence[float]) -> float:
    """The largest relative difference; nan if a loss is nan."""
    return largest(abs(loss - right) / abs(right) for loss, right in zip(losses, expected, strict=True))


def largest(differences: Iterable[float]) -> float:
    """The maximum: nan if any difference is nan, 0 if there is none."""
    values = list(differences)
    return math.nan if any(map(math.isnan, values)) else max(values, default=0.0)


def allowed(noise: Iterable[float], precision: str) -> float:
    """The largest relative difference that rounding explains, given those of eager's runs with other kernels."""
    return max(NOISE_LIMIT * largest(noise), RESOLUTION[precision])


def _attention(*backends: str) -> Kernels:
    """Scaled dot product attention by the first of these backends that supports the arguments."""

    def select() -> contextlib.AbstractContextManager[Any]:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        return sdpa_kernel([getattr(SDPBackend, name) for name in backends], set_priority=True)

    return select


def _other_blas() -> contextlib.AbstractContextManager[Any]:
    import torch

    current = str(torch.backends.cuda.preferred_blas_library()).lower()
    torch.backends.cuda.preferred_blas_library("cublas" if "cublaslt" in current else "cublaslt")
    return contextlib.nullcontext()


@contextlib.contextmanager
def _without_one_dnn() -> Iterator[None]:
    import torch

    with warnings.catch_warnings():
        # `flags` sets what is only for Intel's GPUs, too.
        warnings.filterwarnings("ignore", "TF32 acceleration on top of oneDNN")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _without_cudnn() -> contextlib.AbstractContextManager[Any]:
    import torch

    # This affects convolutions and cuDNN's attention. The other attention backends have rows for themselves.
    return torch.backends.cudnn.flags(enabled=False)


# By default attention uses cuDNN on a Hopper GPU, and the fused kernel on a CPU.
OTHER_KERNELS: dict[str, dict[str, Kernels]] = {
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
"""Contexts in which eager runs other kernels, by device type, in the order of use; for images in the reverse order."""

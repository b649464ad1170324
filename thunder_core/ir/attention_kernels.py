"""Which kernels attention may choose: switches of the process, which `torch.nn.attention.sdpa_kernel` sets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from torch.nn.attention import SDPBackend, sdpa_kernel

from thunder_core.pytorch_internals import (
    get_cudnn_sdp_enabled,
    get_flash_sdp_enabled,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
    get_overrideable_sdp_enabled,
)

_SWITCHES: Final = (
    ("FLASH_ATTENTION", get_flash_sdp_enabled),
    ("EFFICIENT_ATTENTION", get_mem_efficient_sdp_enabled),
    ("MATH", get_math_sdp_enabled),
    ("CUDNN_ATTENTION", get_cudnn_sdp_enabled),
    ("OVERRIDEABLE", get_overrideable_sdp_enabled),
)


def attention_kernels() -> tuple[str, ...]:
    """Names of the members of `SDPBackend` that are switched on."""
    return tuple([name for name, enabled in _SWITCHES if enabled()])


@contextmanager
def only_kernels(names: tuple[str, ...] | None) -> Iterator[None]:
    """Switch these on and all others off; None leaves the switches alone."""
    if names is None:
        yield
        return
    with sdpa_kernel([getattr(SDPBackend, name) for name in names]):
        yield

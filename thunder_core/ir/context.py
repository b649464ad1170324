"""The modes a symbol runs under: gradient recording, inference mode, autocast, kernels of attention."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Context:
    """Thread-local PyTorch modes at the time of a call.

    ``autocast`` holds one ``(device type, dtype)`` pair for each device type whose autocast is enabled. ``attention``
    names the kernels that attention may choose where the program itself says so (`attention_kernels`); None: those
    that its caller allows.
    """

    grad_enabled: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    autocast_cache: bool = True
    attention: tuple[str, ...] | None = None


# Device types whose autocast is looked at. Asking for a device type that this build lacks is allowed and cheap.
AUTOCAST_DEVICE_TYPES = ("cpu", "cuda")


def current_context() -> Context:
    """The modes of the calling thread, now. Whether the program chose kernels of attention, it does not know."""
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        autocast = tuple(
            (kind, torch.get_autocast_dtype(kind)) for kind in AUTOCAST_DEVICE_TYPES if torch.is_autocast_enabled(kind)
        )
    return Context(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast,
        torch.is_autocast_cache_enabled(),
    )

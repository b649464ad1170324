"""The modes that a symbol runs under: gradient recording, inference mode, autocast, kernels of attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from thunder_core.pytorch_internals import (
    get_cudnn_sdp_enabled,
    get_flash_sdp_enabled,
    get_math_sdp_enabled,
    get_mem_efficient_sdp_enabled,
    get_overrideable_sdp_enabled,
)


@dataclass(frozen=True, slots=True)
class Context:
    """Thread-local PyTorch modes at the time of a call.

    ``autocast`` holds one ``(device type, dtype)`` pair for each device type whose autocast is enabled. ``attention``
    holds the names of the attention kernels that the program itself enabled (see `attention_kernels`), or None if it
    leaves the choice to its caller.
    """

    grad_enabled: bool
    inference: bool
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    autocast_cache: bool = True
    attention: tuple[str, ...] | None = None


# Device types whose autocast state is read. Reading it for a device type that this build lacks is allowed and cheap.
AUTOCAST_DEVICE_TYPES = ("cpu", "cuda")


def current_context() -> Context:
    """The current modes of the calling thread. ``attention`` is None: PyTorch does not tell who set the kernels."""
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        autocast = tuple(
            (kind, torch.get_autocast_dtype(kind)) for kind in AUTOCAST_DEVICE_TYPES if torch.is_autocast_enabled(kind)
        )
    return _context(
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        autocast,
        torch.is_autocast_cache_enabled(),
    )


_context: Final = cache(Context)  # equal contexts are one object, which comparisons of the keys of ops recognize


def with_items(context: Context, ambient: Context) -> list[str]:
    """The items, at least one, of a ``with`` statement that changes the modes from ``ambient`` to ``context``."""
    items = []
    grad = ambient.grad_enabled
    if context.inference != ambient.inference:
        items.append(f"torch.inference_mode({'' if context.inference else False})")
        grad = not context.inference  # inference mode also sets the grad mode
    if context.grad_enabled != grad:
        items.append("torch.enable_grad()" if context.grad_enabled else "torch.no_grad()")
    items += _autocast_items(context, ambient)
    if context.attention is not None:
        kernels = ", ".join([f"torch.nn.attention.SDPBackend.{name}" for name in context.attention])
        items.append(f"torch.nn.attention.sdpa_kernel([{kernels}])")
    return items or [f"torch.set_grad_enabled({context.grad_enabled})"]


def _autocast_items(context: Context, ambient: Context) -> list[str]:
    before, after = dict(ambient.autocast), dict(context.autocast)
    cache_differs = context.autocast_cache != ambient.autocast_cache
    cache = f", cache_enabled={context.autocast_cache}" if cache_differs else ""
    items = [f'torch.autocast("{kind}", enabled=False{cache})' for kind in before if kind not in after]
    for kind, dtype in after.items():
        if before.get(kind) != dtype or cache_differs:
            items.append(f'torch.autocast("{kind}", dtype={dtype}{cache})')
    if not items and cache_differs:
        items.append(f'torch.autocast("cpu", enabled=False{cache})')
    return items


def describe_context(context: Context) -> str:
    """One line for the header of a trace: ``grad=True inference=False autocast=cpu:bfloat16 cache=True``."""
    pairs = ",".join(f"{kind}:{str(dtype).removeprefix('torch.')}" for kind, dtype in context.autocast)
    return (
        f"grad={context.grad_enabled} inference={context.inference} "
        f"autocast={pairs or 'none'} cache={context.autocast_cache}"
    )


_SWITCHES: Final[tuple[tuple[str, Callable[[], bool]], ...]] = (
    ("FLASH_ATTENTION", get_flash_sdp_enabled),
    ("EFFICIENT_ATTENTION", get_mem_efficient_sdp_enabled),
    ("MATH", get_math_sdp_enabled),
    ("CUDNN_ATTENTION", get_cudnn_sdp_enabled),
    ("OVERRIDEABLE", get_overrideable_sdp_enabled),
)


def attention_kernels() -> tuple[str, ...]:
    """Names of the enabled members of `SDPBackend`."""
    return tuple([name for name, enabled in _SWITCHES if enabled()])


@contextmanager
def only_kernels(names: tuple[str, ...] | None) -> Iterator[None]:
    """Enable exactly the attention kernels of these names; None changes nothing."""
    if names is None:
        yield
        return
    with sdpa_kernel([getattr(SDPBackend, name) for name in names]):
        yield


@contextmanager
def modes_for_fakes(context: Context, *, grad: bool = True) -> Iterator[None]:
    """Enter the grad mode, autocast and attention kernels of ``context``, for calls on fake tensors.

    Inference mode becomes ``no_grad``: fake tensors do not work in it. Autocast is set without `torch.autocast`, which
    does not enable it for device types that the machine lacks.

    Args:
        grad: False disables gradient recording, regardless of ``context``.
    """
    enabled = dict(context.autocast)
    before = {kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in AUTOCAST_DEVICE_TYPES}
    grad = grad and context.grad_enabled and not context.inference
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(grad),
        torch.autocast("cpu", enabled=False),
        only_kernels(context.attention),
    ):
        try:
            for kind, (_, dtype) in before.items():
                torch.set_autocast_enabled(kind, kind in enabled)
                torch.set_autocast_dtype(kind, enabled.get(kind, dtype))
            yield
        finally:
            for kind, (was_enabled, dtype) in before.items():
                torch.set_autocast_enabled(kind, was_enabled)
                torch.set_autocast_dtype(kind, dtype)

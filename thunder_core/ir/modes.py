"""Enter a context for calls on fake tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from thunder_core.ir.attention_kernels import only_kernels
from thunder_core.ir.context import AUTOCAST_DEVICE_TYPES, Context


@contextmanager
def modes_for_fakes(context: Context, *, grad: bool = True) -> Iterator[None]:
    """The grad mode, autocast and attention kernels of ``context``.

    Inference mode, in which fake tensors are no use, means no grad.
    Autocast is set without `torch.autocast`, which leaves it off for kinds of devices that the machine lacks.

    Args:
        grad: False keeps the recording of gradients off in any case.
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

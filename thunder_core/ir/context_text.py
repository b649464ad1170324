"""Contexts as Python: the items of ``with`` statements, and the header comment of a trace."""

from __future__ import annotations

from thunder_core.ir.context import Context


def with_items(context: Context, ambient: Context) -> list[str]:
    """The items of the ``with`` statement that leads from ``ambient`` to ``context``; at least one."""
    items = []
    grad = ambient.grad_enabled
    if context.inference != ambient.inference:
        items.append(f"torch.inference_mode({'' if context.inference else False})")
        grad = not context.inference  # inference mode sets the grad mode too
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

"""Contexts from Python: the reverse of `thunder_core.ir.context_text`."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import torch

from thunder_core.ir.context import AUTOCAST_DEVICE_TYPES, Context
from thunder_core.ir.expressions import ExpressionReader, dotted


def read_context(items: tuple[ast.expr, ...], ambient: Context, expressions: ExpressionReader) -> Context | None:
    """The context inside of ``with`` items; None without any. Raises TraceSyntaxError for other context managers."""
    context = ambient
    for item in items:
        name = dotted(item.func) if isinstance(item, ast.Call) else None
        if not isinstance(item, ast.Call) or name not in _CHANGES:
            known = ", ".join(_CHANGES)
            raise expressions.module.error(f"{ast.unparse(item)!r} is not one of the contexts {known}", item)
        args = [expressions.value(argument) for argument in item.args]
        try:
            context = _CHANGES[name](context, *args, **expressions.keywords(item))
        except TypeError as error:
            raise expressions.module.error(f"{ast.unparse(item)}: {error}", item) from error
    return context if items else None


def read_header_context(text: str) -> Context:
    """The context in the header of a trace. Raises ValueError."""
    fields = dict(item.split("=", 1) for item in text.split())
    pairs = [] if fields["autocast"] == "none" else [pair.split(":") for pair in fields["autocast"].split(",")]
    autocast = tuple((kind, getattr(torch, dtype)) for kind, dtype in pairs)
    grad, inference, cache = (fields[key] == "True" for key in ("grad", "inference", "cache"))
    return Context(grad, inference, autocast, cache)


def _grad(context: Context, mode: bool) -> Context:
    return replace(context, grad_enabled=mode)


def _inference(context: Context, mode: bool = True) -> Context:
    return replace(context, inference=mode, grad_enabled=not mode)


def _autocast(
    context: Context, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
) -> Context:
    pairs = dict(context.autocast)
    pairs.pop(device_type, None)
    if enabled:
        pairs[device_type] = dtype or torch.get_autocast_dtype(device_type)
    kinds = [*AUTOCAST_DEVICE_TYPES, *[kind for kind in pairs if kind not in AUTOCAST_DEVICE_TYPES]]
    autocast = tuple((kind, pairs[kind]) for kind in kinds if kind in pairs)
    cache = context.autocast_cache if cache_enabled is None else cache_enabled
    return replace(context, autocast=autocast, autocast_cache=cache)


def _attention(context: Context, backends: list[Any]) -> Context:
    return replace(context, attention=tuple([backend.name for backend in backends]))


_CHANGES: dict[str, Any] = {
    "torch.no_grad": lambda context: _grad(context, False),
    "torch.enable_grad": lambda context: _grad(context, True),
    "torch.set_grad_enabled": _grad,
    "torch.inference_mode": _inference,
    "torch.autocast": _autocast,
    "torch.nn.attention.sdpa_kernel": _attention,
}

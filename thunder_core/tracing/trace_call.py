"""A call of a Python function on tensors, as a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, iterate_proxies, map_leaves
from thunder_core.tracing.fake_tensors import make_fake, make_sharing_fakes
from thunder_core.tracing.tracer import Level, Tracer


def trace_call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    context: Context,
    level: Level,
    *,
    share: bool = False,
) -> Trace:
    """What ``function(*args, **kwargs)`` calls, with fake tensors in place of the proxies.

    The inputs of the trace are the proxies among the arguments in order, repeated ones repeated; its output is the
    result of the function. Random generators keep their states.

    Args:
        context: the modes of the call. Gradients are not recorded at CORE_ATEN.
        share: inputs share storages as the proxies do, for calls that write; by default each has its own.

    Raises:
        LoweringError: a call cannot be recorded.
        Exception: whatever ``function`` raises.
    """
    tracer = Tracer(level)
    proxies = list(iterate_proxies((args, kwargs)))
    distinct = {proxy.name: proxy for proxy in proxies if isinstance(proxy, TensorProxy)}
    if share:
        fakes = make_sharing_fakes(tracer.mode, distinct.values())
    else:
        fakes = {name: make_fake(tracer.mode, proxy) for name, proxy in distinct.items()}
    others: dict[str, Proxy] = {}
    for proxy in proxies:
        if isinstance(proxy, TensorProxy):
            tracer.input(fakes[proxy.name], proxy)
        else:
            others[proxy.name] = tracer.other_input(proxy)

    def value(leaf: Any) -> Any:
        if isinstance(leaf, TensorProxy):
            return fakes[leaf.name]
        return others[leaf.name] if isinstance(leaf, PROXY_TYPES) else on_fakes(leaf)

    args, kwargs = map_leaves(value, args), map_leaves(value, kwargs)
    with torch.random.fork_rng(devices=[]), tracer.recording(context, grad=level is not Level.CORE_ATEN):
        result = function(*args, **kwargs)
        return tracer.trace(result, context)


def refuse_objects(bound: BoundSymbol) -> None:
    """Raise LoweringError for a line whose arguments or results have no fake counterpart."""
    for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
        if isinstance(leaf, Trace):
            raise LoweringError(f"{bound.symbol.name} takes a program")
        if isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, TensorProxy):
            raise LoweringError(f"{bound.symbol.name} works on {leaf.name}, which is no tensor")
        if isinstance(leaf, TensorProxy) and leaf.layout is not torch.strided:
            raise LoweringError(f"{bound.symbol.name} works on the sparse tensor {leaf.name}")

"""Trace a call of a Python function on tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, metadata_of, tensor_outputs_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import on_fakes
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import iterate_leaves, iterate_proxies, list_proxies, map_leaves
from thunder_core.tracing.fake_tensors import make_fake, make_sharing_fakes
from thunder_core.tracing.signal_handlers import lowering_error
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
    """Trace ``function(*args, **kwargs)`` with fake tensors in place of the proxies.

    The inputs of the trace are the proxies among the arguments in order, with repetitions; its output is the result of
    the function. The states of random generators do not change.

    Args:
        context: the modes of the call. Gradients are not recorded at CORE_ATEN.
        share: whether inputs share storages as the proxies do, for calls that write; else each has a separate storage.

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
    """Raise LoweringError for an op with arguments or results that no fake tensor can represent."""
    for leaf in iterate_leaves((bound.args, bound.kwargs, bound.output)):
        if isinstance(leaf, Trace):
            raise LoweringError(f"{bound.symbol.name} takes a program")
        if isinstance(leaf, PROXY_TYPES) and not isinstance(leaf, TensorProxy):
            raise LoweringError(f"{bound.symbol.name} works on {leaf.name}, which is not a tensor")
        if isinstance(leaf, TensorProxy) and leaf.layout is not torch.strided:
            raise LoweringError(f"{bound.symbol.name} works on the sparse tensor {leaf.name}")


_cache: Final = BoundedCache[Trace](1024)


def rewritten_form(bound: BoundSymbol, function: Callable[..., Any], ambient: Context) -> Trace:
    """The trace of ``function`` on the arguments of ``bound``, for `Builder.inline`.

    It is the same object for ops that are equal except for names: these are traced once.

    Args:
        ambient: the context of the trace of ``bound``.

    Raises:
        LoweringError: ``function`` fails, or its result has other metadata than that of ``bound``.
    """
    context = bound.context or ambient
    key = call_key(bound, context)
    return _cache.get(None if key is None else (key, function), lambda: _record(bound, function, context))


def _described(metadata: list[tuple[Any, ...]]) -> str:
    """Dtype, shape, strides and device of each tensor."""
    texts = [f"{dtype} {list(shape)} strides {list(stride)} on {device}" for shape, stride, dtype, device in metadata]
    return ", ".join(texts).replace("torch.", "") or "no tensor"


def _record(bound: BoundSymbol, function: Callable[..., Any], context: Context) -> Trace:
    name = bound.symbol.name
    try:
        trace = trace_call(function, bound.args, bound.kwargs, context, Level.TORCH)
    except Exception as error:  # an error in the author's rewrite
        problem = f"the rewrite of {name} failed: {type(error).__name__}: {error}"
        advice = "a kernel that does not run on fake tensors is the `run` of a claim"
        raise lowering_error(error, f"{problem}; {advice}") from error
    results = [proxy for proxy in list_proxies((trace.output,)) if isinstance(proxy, TensorProxy)]
    found, expected = ([metadata_of(proxy) for proxy in of] for of in (results, tensor_outputs_of(bound)))
    if found != expected:
        raise LoweringError(
            f"the results of the rewrite of {name} differ from those of the operation: {_described(found)} instead of "
            f"{_described(expected)}"
        )
    names = {proxy.name for proxy in results}
    if len(names) < len(results) or not names <= trace.producers.keys():
        raise LoweringError("a rewrite returns one of its arguments, or a result twice")
    return replace(trace, output=tuple(results))

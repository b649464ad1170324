"""A line as the torch functions that some Python function calls in its place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.context import Context
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tensors import metadata_of, tensor_outputs_of
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import list_proxies
from thunder_core.tracing.trace_call import trace_call
from thunder_core.tracing.tracer import Level

_cache: Final = BoundedCache[Trace](1024)


def rewritten_form(bound: BoundSymbol, function: Callable[..., Any], ambient: Context) -> Trace:
    """The calls that ``function`` makes with the arguments of ``bound``, for `Builder.inline`.

    The same object for lines that are equal but for names: these are recorded once.

    Args:
        ambient: the context of the trace.

    Raises:
        LoweringError: ``function`` fails, or what it returns is not what the line does.
    """
    context = bound.context or ambient
    key = call_key(bound, context)
    return _cache.get(None if key is None else (key, function), lambda: _record(bound, function, context))


def _record(bound: BoundSymbol, function: Callable[..., Any], context: Context) -> Trace:
    name = bound.symbol.name
    try:
        trace = trace_call(function, bound.args, bound.kwargs, context, Level.TORCH)
    except Exception as error:  # of the author of the rewrite
        raise LoweringError(f"the rewrite of {name} failed: {type(error).__name__}: {error}") from error
    results = [proxy for proxy in list_proxies((trace.output,)) if isinstance(proxy, TensorProxy)]
    if [metadata_of(proxy) for proxy in results] != [metadata_of(proxy) for proxy in tensor_outputs_of(bound)]:
        raise LoweringError(f"the rewrite of {name} returns something else than it does")
    names = {proxy.name for proxy in results}
    if len(names) < len(results) or not names <= trace.producers.keys():
        raise LoweringError("a rewrite returns one of its arguments, or a result twice")
    return replace(trace, output=tuple(results))

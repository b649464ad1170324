"""Lower an op of a trace to core ATen on demand, with PyTorch's decompositions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Protocol

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_outputs_of
from thunder_core.ir.bounded_cache import BoundedCache
from thunder_core.ir.builder import Builder
from thunder_core.ir.context import Context
from thunder_core.ir.keys import call_key
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.tree import list_proxies
from thunder_core.pytorch_internals import (
    OpOverload,
)
from thunder_core.symbols.registry import registry
from thunder_core.tracing.decompositions import is_core
from thunder_core.tracing.signal_handlers import lowering_error
from thunder_core.tracing.sizes import operators_for_sizes
from thunder_core.tracing.trace_call import refuse_objects, trace_call
from thunder_core.tracing.tracer import Level


class Store(Protocol):
    """A store of lowered forms outside of this process, with keys of `call_key`."""

    def read(self, key: Any, bound: BoundSymbol) -> tuple[BoundSymbol, Any] | None:
        """An op equal to ``bound`` except for names, and its stored form; None if there is none."""

    def write(self, key: Any, bound: BoundSymbol, value: Any) -> None:
        """Store the form of ``bound``, if it can be stored."""


_cache: Final = BoundedCache[Trace](1024)


def lower(bound: BoundSymbol, ambient: Context, builder: Builder | None = None) -> tuple[BoundSymbol, ...]:
    """Core-ATen ops that replace ``bound`` under the same context.

    They take its inputs and define its outputs, with the same values; random numbers are drawn in the same order. The
    form is cached for ops with equal symbols and metadata.

    Args:
        ambient: the context of the trace, for ops without a context.
        builder: names new values; by default names and storages are unused in ``bound`` only.

    Raises:
        LoweringError: the op cannot be lowered; the message has the reason.
    """
    form = lowered_form(bound, ambient)
    return (builder or Builder.of(_alone(bound, ambient))).inline(form, bound)


def lowered_form(bound: BoundSymbol, ambient: Context, store: Store | None = None) -> Trace:
    """The core-ATen form of an op, for `Builder.inline`; the same object for ops that are equal except for names.

    Forms that are not cached in this process are read from ``store``, or computed and added to it.

    Raises LoweringError as `lower` does, and for ops with effects outside of tensors, which tracing would cause.
    """
    if bound.effects.visible:
        raise LoweringError(f"{bound.symbol.name} has effects outside of tensors", location=bound.location)
    context = bound.context or ambient
    key = call_key(bound, context)

    def find() -> Trace:
        if store is None or key is None:
            return _lowered(bound, context)
        entry = store.read(key, bound)
        form: Trace = _lowered(bound, context) if entry is None else entry[1]
        if entry is None:
            store.write(key, bound, form)
        return form

    return _cache.get(key, find)


def lower_trace(trace: Trace) -> Trace:
    """The trace with `BoundSymbol.parts` set for each op that can be lowered."""
    builder = Builder.of(trace)
    lines = []
    for bound in trace.symbols:
        try:
            parts = lower(bound, trace.context, builder)
        except LoweringError:
            lines.append(bound)
            continue
        lowest = len(parts) == 1 and parts[0].symbol is bound.symbol
        lines.append(bound if lowest else replace(bound, parts=parts))
    return replace(trace, symbols=tuple(lines))


def _lowered(bound: BoundSymbol, context: Context) -> Trace:
    refuse_objects(bound)
    operator, decomposition = bound.symbol.target, bound.symbol.decomposition
    if isinstance(operator, OpOverload) and decomposition is None and is_core(operator):
        return _alone(bound, context)
    form = None if decomposition is None else _trace(bound, decomposition, context)
    form = form or _trace(bound, operator, context)
    if form is None:
        raise LoweringError(f"{bound.symbol.name} does not implement this call")
    return form


def _alone(bound: BoundSymbol, context: Context) -> Trace:
    """The form of an op that is core ATen itself."""
    return Trace("call", bound.inputs(), (bound,), bound.output, Stage.ACQUIRED, "tracer", context)


def _trace(bound: BoundSymbol, function: Callable[..., Any], context: Context) -> Trace | None:
    """The trace of a function that replaces an op; None if the function returns NotImplemented."""
    try:
        with operators_for_sizes(bound):
            trace = trace_call(function, bound.args, bound.kwargs, context, Level.CORE_ATEN, share=True)
    except Exception as error:  # any failure on fake tensors
        raise lowering_error(error, f"{bound.symbol.name}: {error}") from error
    if trace.output is NotImplemented:
        return None
    outputs = tensor_outputs_of(bound)
    results = [proxy for proxy in list_proxies((trace.output,)) if isinstance(proxy, TensorProxy)]
    if len(results) != len(outputs):
        raise LoweringError(f"{bound.symbol.name} returns {len(results)} tensors when lowered")
    trace = _with_own_results(replace(trace, output=tuple(results)))
    if not any(proxy.requires_grad for proxy in outputs):
        return trace
    values = [proxy for op in trace.symbols for proxy in tensor_outputs_of(op)]
    return trace.with_gradients({proxy.name for proxy in values if proxy.can_require_grad})


def _with_own_results(trace: Trace) -> Trace:
    """The trace with a new value for each result that is an input or an earlier result."""
    results: list[TensorProxy] = []
    aliases: list[BoundSymbol] = []
    for number, result in enumerate(trace.output):
        if result.name not in trace.producers or result in results:
            alias = replace(result, name=f"a{number}")
            aliases.append(BoundSymbol(registry.symbol_named("torch.ops.aten.alias.default"), (result,), {}, alias))
            result = alias
        results.append(result)
    return replace(trace, symbols=(*trace.symbols, *aliases), output=tuple(results)) if aliases else trace

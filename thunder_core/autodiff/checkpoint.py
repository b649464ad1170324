"""Checkpoint regions: their lines join the trace, and are remembered as lines to compute again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thunder_core.acquire.higher_order import CHECKPOINT
from thunder_core.autodiff.emitter import JointEmitter
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.fresh_values import FreshValues
from thunder_core.passes.functionalize import FromComputation, Functionalize
from thunder_core.passes.offers import Offers
from thunder_core.passes.proxies import outputs_of


@dataclass(frozen=True, slots=True)
class Inlined:
    """A trace with the lines of checkpoint regions in place of the calls.

    Attributes:
        trace: the trace.
        made: names of values that were made in a region.
        recomputed: those of them that backward makes again; what a region returns may be saved.
    """

    trace: Trace
    made: frozenset[str] = frozenset()
    recomputed: frozenset[str] = frozenset()


def inline_checkpoints(trace: Trace) -> Inlined:
    """Put the lines of checkpoint regions, also of regions inside of regions, in place of the calls.

    A region stays a call, which PyTorch differentiates at run time, if it has a policy of its own (``context_fn``) or
    writes to tensors from outside.
    """
    if not any(bound.symbol is CHECKPOINT for bound in trace.symbols):
        return Inlined(trace)
    emitter = JointEmitter(trace)
    made: set[str] = set()
    recomputed: set[str] = set()
    for bound in trace.symbols:
        lines = list(_region(bound, trace, emitter)) if bound.symbol is CHECKPOINT else []
        for line in lines or [bound]:
            emitter.add(line)
        inner = {proxy.name for line in lines for proxy in outputs_of(line)}
        made |= inner
        recomputed |= inner - {proxy.name for proxy in outputs_of(bound)}
    if not made:
        return Inlined(trace)
    nested = inline_checkpoints(trace.with_symbols(emitter.lines, "checkpoint regions"))
    return Inlined(nested.trace, nested.made | made, nested.recomputed | recomputed)


def rewrite_regions(inlined: Inlined, executors: Sequence[Executor]) -> Inlined:
    """Offer the lines of regions to the executors that rewrite lines; `RewriteClaims` saw a call in their place."""
    if not inlined.made or not any(executor.rewrites for executor in executors):
        return inlined
    trace = inlined.trace
    offers = Offers(executors, FreshValues.of(trace), trace.context)
    lines: list[BoundSymbol] = []
    new: set[str] = set()
    for bound in trace.symbols:
        own = {proxy.name for proxy in outputs_of(bound)}
        if own.isdisjoint(inlined.made):
            lines.append(bound)
            continue
        rewritten = offers.rewritten(bound)
        lines += rewritten
        new.update(proxy.name for line in rewritten for proxy in outputs_of(line) if proxy.name not in own)
    return Inlined(trace.with_symbols(lines, "checkpoint regions"), inlined.made | new, inlined.recomputed | new)


def _region(bound: BoundSymbol, trace: Trace, emitter: JointEmitter) -> Iterator[BoundSymbol]:
    """The lines of one region; none if it must stay a call."""
    body = bound.args[0]
    functional = Functionalize().run(body)
    own_outputs = outputs_of(bound)
    twice = len(set(functional.results)) < len(own_outputs)
    if "context_fn" in bound.kwargs or functional.epilogue is not None or twice:
        return
    computation = functional.computation
    pairs: list[tuple[Proxy, Proxy]] = list(zip(computation.inputs, bound.args[1:], strict=True))
    for source, own in zip(functional.results, own_outputs, strict=True):
        if not isinstance(source, FromComputation):
            return
        pairs.append((computation.output[source.index], own))
    values = {inner.name: outer for inner, outer in pairs}
    storages: dict[int, int] = {}
    for inner, outer in pairs:
        if isinstance(inner, TensorProxy) and isinstance(outer, TensorProxy):
            storages.setdefault(inner.storage, outer.storage)

    def value(leaf: Any) -> Any:
        if not isinstance(leaf, PROXY_TYPES):
            return leaf
        if leaf.name not in values:
            values[leaf.name] = _renamed(leaf, emitter, storages)
        return values[leaf.name]

    for line in computation.symbols:
        context = line.context or body.context
        yield replace(
            line.map_arguments(value),
            output=map_leaves(value, line.output),
            context=None if context == trace.context else context,
        )


def _renamed(proxy: Proxy, emitter: JointEmitter, storages: dict[int, int]) -> Proxy:
    named: Proxy = replace(proxy, name=emitter.name(proxy.name))
    if not isinstance(named, TensorProxy):
        return named
    if named.storage not in storages:
        storages[named.storage] = emitter.storage()
    return replace(named, storage=storages[named.storage])

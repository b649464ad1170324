"""The derivative of a line that PyTorch's autograd records while the program runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from thunder_core.autodiff import eager_graph
from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves

_GRADIENTS_OF = Symbol(
    "thunder_core.autodiff.eager_graph.gradients_of", eager_graph.gradients_of, tags=frozenset({Tag.PARTIAL})
)
_RECORD_GRAPH = Symbol("thunder_core.autodiff.eager_graph.record_graph", eager_graph.record_graph)


def derive_by_eager(query: Query, reason: str) -> Derivative:
    """Forward records the line's autograd graph, which backward goes through; fits every line.

    Args:
        reason: why the derivative is not known beforehand.
    """
    bound = query.bound
    leaves = list(iterate_leaves((bound.args, bound.kwargs)))
    positions: dict[str, int] = {}
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, TensorProxy) and leaf.name in query.wanted:
            positions.setdefault(leaf.name, position)
    graph = OpaqueProxy(":graph", "EagerGraph")
    forward = replace(_record(bound, tuple(positions.values())), output=(bound.output, graph), location=bound.location)
    own = [proxy for proxy in bound.outputs() if isinstance(proxy, TensorProxy)]
    storages = count(-1, -1)
    cotangents = {
        proxy.name: stand_in(proxy, f":{proxy.name}_cotangent", next(storages))
        for proxy in own
        if proxy.name in query.reached and proxy.requires_grad
    }
    inputs = {leaf.name: leaf for leaf in leaves if isinstance(leaf, TensorProxy)}
    gradients = {name: stand_in(inputs[name], f":{name}_gradient", next(storages)) for name in positions}
    results = [leaf.name if isinstance(leaf, TensorProxy) else "" for leaf in iterate_leaves(bound.output)]
    arguments = (graph, (False,) * len(gradients), tuple([cotangents.get(name) for name in results]))
    found: dict[str, Proxy] = dict(gradients)
    backward = BoundSymbol(_GRADIENTS_OF, arguments, {}, tuple(found.values()), context=PLAIN, location=bound.location)
    return Derivative(bound, (forward,), (backward,), cotangents, found, "eager at run time", reason=reason)


def require_what_is_used(lines: Sequence[BoundSymbol]) -> tuple[BoundSymbol, ...]:
    """The lines, where those of `derive_by_eager` give a tensor, not None, for each gradient that a line uses."""
    if not any(line.symbol is _GRADIENTS_OF for line in lines):
        return tuple(lines)
    used = {proxy.name for line in lines for proxy in line.inputs()}

    def required(line: BoundSymbol) -> BoundSymbol:
        if line.symbol is not _GRADIENTS_OF:
            return line
        graph, _, cotangents = line.args
        return replace(line, args=(graph, tuple([proxy.name in used for proxy in line.outputs()]), cotangents))

    return tuple(map(required, lines))


def _record(bound: BoundSymbol, wanted: tuple[int, ...]) -> BoundSymbol:
    assert bound.context is not None
    context = replace(bound.context, grad_enabled=False, inference=False)
    arguments: tuple[Any, ...] = (wanted, bound.args, bound.kwargs)
    effects = replace(bound.effects, external=True)  # each graph serves one backward: calls are never merged
    function = bound.symbol.target
    if Tag.LOCAL in bound.symbol.tags or import_path(function) is None:  # no literal stands for it
        symbol = Symbol(
            f"{bound.symbol.name}_with_graph".replace(".", "_"),
            partial(eager_graph.record_graph, function),
            tags=frozenset({Tag.OPAQUE, Tag.LOCAL}),
        )
        return BoundSymbol(symbol, arguments, {}, None, effects, context)
    return BoundSymbol(_RECORD_GRAPH, (function, *arguments), {}, None, effects, context)

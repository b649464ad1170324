"""The derivative of a line that PyTorch's autograd records while the program runs.

For lines whose derivative cannot be written down beforehand: a user's `torch.autograd.Function`, a formula that needs
values. Forward records the call's own autograd graph; backward goes through it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.operations import with_copies, with_strides
from thunder_core.pytorch_internals import get_current_graph_task_keep_graph

End = GradientEdge | torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class EagerGraph:
    """What one call left behind for its backward: both ends of its autograd graph.

    They are edges and not tensors: autograd gives a view another edge once its memory is written, which a program may
    do afterwards.

    Attributes:
        sources: the tensors whose gradient is wanted, without history.
        inputs: where they enter the graph.
        outputs: where the items of the result leave it; None for what has no gradient.
    """

    sources: tuple[torch.Tensor, ...]
    inputs: tuple[End, ...]
    outputs: tuple[End | None, ...]


def record_graph(
    function: Callable[..., Any],
    wanted: tuple[int, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    copied: tuple[int, ...] = (),
) -> tuple[Any, EagerGraph]:
    """Call ``function`` while autograd records it.

    Args:
        wanted: positions, among the leaves of ``(args, kwargs)``, of the tensors whose gradient is wanted. A tensor
            that stands at several positions is named once.
        copied: positions of tensors that ``function`` gets a copy of: their memory is written before backward.

    Returns:
        The function's result, without its history, and what `gradients_of` needs.
    """
    if copied:
        with torch.inference_mode(False), torch.no_grad():
            args, kwargs, _ = with_copies(copied, args, kwargs)
    leaves = list(iterate_leaves((args, kwargs)))
    with torch.inference_mode(False), torch.enable_grad():
        sources = [leaves[position].detach().requires_grad_() for position in wanted]
        # computed tensors, as in the program: a user's function may write them
        inputs = list(map(_computed, sources))
        entries = tuple([_edge(tensor) for tensor in inputs])
        args, kwargs = _replaced(args, kwargs, leaves, dict(zip(wanted, inputs, strict=True)))
        result = function(*args, **kwargs)
        graph = EagerGraph(tuple(sources), entries, tuple(map(_exit, iterate_leaves(result))))
    with torch.no_grad():
        detached = map_leaves(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, result)
    return detached, graph


def _replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], inputs: dict[int, torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with ``inputs``, by position, in their places; other places of the same tensors get them too.

    A tensor that is two values of the program, as one that is given for two parameters, has a place for each.
    """
    same = {id(leaves[position]): inputs[position] for position in reversed(inputs)}
    positions = count()
    changed: tuple[tuple[Any, ...], dict[str, Any]] = map_leaves(
        lambda leaf: inputs.get(next(positions), same.get(id(leaf), leaf)), (args, kwargs)
    )
    return changed


def _edge(tensor: torch.Tensor) -> End:
    """Sparse tensors are no views, nor can PyTorch tell the edge of those that are leaves."""
    return get_gradient_edge(tensor) if tensor.layout is torch.strided else tensor


def _exit(leaf: Any) -> End | None:
    return _edge(leaf) if isinstance(leaf, torch.Tensor) and leaf.requires_grad else None


def _as_expected(gradient: torch.Tensor | None, source: torch.Tensor) -> torch.Tensor:
    if gradient is None:
        return torch.zeros_like(source)
    if source.layout is not torch.strided:
        return gradient
    return with_strides(gradient, torch.empty_like(source, device="meta").stride())


def _computed(source: torch.Tensor) -> torch.Tensor:
    return source.view_as(source) if source.layout is torch.strided else source


def gradients_of(
    graph: EagerGraph, required: tuple[bool, ...], cotangents: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of the tensors that `record_graph` was asked for, in its order.

    Args:
        required: which of them lines of backward use. These are tensors (zeros where none flows) of dense strides, as
            those lines expect, whatever the call's own backward made. The others are as it made them, or None.
        cotangents: for each item of the result, or None where it has none.
    """
    pairs = [
        (output, cotangent)
        for output, cotangent in zip(graph.outputs, cotangents, strict=True)
        if cotangent is not None and output is not None
    ]
    gradients: tuple[torch.Tensor | None, ...] = (None,) * len(graph.inputs)
    if pairs:
        keep: bool = get_current_graph_task_keep_graph()
        outputs, given = zip(*pairs, strict=True)
        inputs: Any = graph.inputs  # PyTorch takes tensors and edges in one sequence, and says so in words alone
        gradients = torch.autograd.grad(outputs, inputs, given, retain_graph=keep, allow_unused=True)
    return tuple(
        [
            _as_expected(gradient, source) if must else gradient
            for source, gradient, must in zip(graph.sources, gradients, required, strict=True)
        ]
    )


_GRADIENTS_OF = Symbol("thunder_core.autodiff.by_eager.gradients_of", gradients_of, tags=frozenset({Tag.PARTIAL}))
_RECORD_GRAPH = Symbol("thunder_core.autodiff.by_eager.record_graph", record_graph)


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
            partial(record_graph, function),
            tags=frozenset({Tag.OPAQUE, Tag.LOCAL}),
        )
        return BoundSymbol(symbol, arguments, {}, None, effects, context)
    return BoundSymbol(_RECORD_GRAPH, (function, *arguments), {}, None, effects, context)

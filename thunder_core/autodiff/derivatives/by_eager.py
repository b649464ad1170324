"""The derivative of an op that PyTorch's autograd records while the program runs.

For ops whose derivative cannot be traced ahead of time: a user's `torch.autograd.Function`, or a formula that depends
on values. Forward records an autograd graph of this call alone; backward runs that graph.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query, stand_in
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects, joined
from thunder_core.ir.import_paths import import_path
from thunder_core.ir.proxy import OpaqueProxy, Proxy, TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import programs_of
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.passes.operations import with_copies, with_strides
from thunder_core.pytorch_internals import backward_hooks_of, get_current_graph_task_keep_graph, view_base

End = GradientEdge | torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class EagerGraph:
    """The autograd graph of one call, by the edges at its inputs and outputs.

    Edges are stored instead of tensors because autograd replaces the edge of a view when its storage is written, which
    the program may do after the call.

    Attributes:
        sources: the tensors whose gradients are computed, without their history.
        inputs: the graph edges of ``sources``.
        outputs: the graph edges of the items of the result; None for an item without gradient.
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
        wanted: positions, among the leaves of ``(args, kwargs)``, of the tensors whose gradients are computed. For a
            tensor at several positions, one of them.
        copied: positions of tensors to copy before the call, because their storage is written before backward.

    Returns:
        The function's result, detached, and the graph for `gradients_of`.
    """
    if copied:
        with torch.inference_mode(False), torch.no_grad():
            args, kwargs, _ = with_copies(copied, args, kwargs)
    leaves = list(iterate_leaves((args, kwargs)))
    with torch.inference_mode(False), torch.enable_grad():
        given = [leaves[position] for position in wanted]
        sources = [tensor if _is_passed(tensor, given) else tensor.detach().requires_grad_() for tensor in given]
        # others are computed tensors, as in the program: a user's function may write them
        inputs = [source if source is tensor else _non_leaf(source) for source, tensor in zip(sources, given)]
        edges = tuple([_edge(tensor) for tensor in inputs])
        args, kwargs = _replaced(args, kwargs, leaves, dict(zip(wanted, inputs, strict=True)))
        result = function(*args, **kwargs)
        graph = EagerGraph(tuple(sources), edges, tuple(map(_output_edge, iterate_leaves(result))))
    with torch.no_grad():
        detached = map_leaves(lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf, result)
    return detached, graph


def _replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any], inputs: dict[int, torch.Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with ``inputs`` at their positions, and at every other position of the tensor that they replace.

    A tensor that is two values of the program, such as one passed for two parameters, has an input for each.
    """
    same = {id(leaves[position]): inputs[position] for position in reversed(inputs)}
    positions = count()
    changed: tuple[tuple[Any, ...], dict[str, Any]] = map_leaves(
        lambda leaf: inputs.get(next(positions), same.get(id(leaf), leaf)), (args, kwargs)
    )
    return changed


def _is_passed(tensor: torch.Tensor, given: Sequence[torch.Tensor]) -> bool:
    """Whether a function gets a tensor itself, since it may also reach it by another object, such as a module.

    The backward of an ``adjoint`` differentiates its module by the module's parameters. Hooks on the tensor would run
    for this graph as well as for the caller's.
    """
    return (
        tensor.requires_grad
        and tensor.is_leaf
        and view_base(tensor) is None
        and not backward_hooks_of(tensor)
        and sum(other is tensor for other in given) == 1
    )


def _edge(tensor: torch.Tensor) -> End:
    """The graph edge of a tensor. For sparse tensors the tensor itself: PyTorch has no edges of sparse leaves."""
    return get_gradient_edge(tensor) if tensor.layout is torch.strided else tensor


def _output_edge(leaf: Any) -> End | None:
    return _edge(leaf) if isinstance(leaf, torch.Tensor) and leaf.requires_grad else None


def _dense_gradient(gradient: torch.Tensor | None, source: torch.Tensor) -> torch.Tensor:
    if gradient is None:
        return torch.zeros_like(source)
    if source.layout is not torch.strided:
        return gradient
    return with_strides(gradient, torch.empty_like(source, device="meta").stride())


def _non_leaf(source: torch.Tensor) -> torch.Tensor:
    return source.view_as(source) if source.layout is torch.strided else source


def gradients_of(
    graph: EagerGraph, required: tuple[bool, ...], cotangents: tuple[torch.Tensor | None, ...]
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of the tensors at the ``wanted`` positions of `record_graph`, in that order.

    Args:
        required: whether ops of backward use the gradient, for each tensor. If so, it is a tensor with dense strides
            (zeros where no gradient flows), as those ops expect. Otherwise it is returned as autograd computed it, and
            may be None.
        cotangents: one for each item of the result; None for an item without cotangent.
    """
    pairs = [
        (output, cotangent)
        for output, cotangent in zip(graph.outputs, cotangents, strict=True)
        if cotangent is not None and output is not None
    ]
    gradients: tuple[torch.Tensor | None, ...] = (None,) * len(graph.inputs)
    if pairs:
        retain_graph: bool = get_current_graph_task_keep_graph()
        outputs, grad_outputs = zip(*pairs, strict=True)
        inputs: Any = graph.inputs  # PyTorch accepts tensors and edges in one sequence, but its type hints lack this
        gradients = torch.autograd.grad(outputs, inputs, grad_outputs, retain_graph=retain_graph, allow_unused=True)
    return tuple(
        [
            _dense_gradient(gradient, source) if used else gradient
            for source, gradient, used in zip(graph.sources, gradients, required, strict=True)
        ]
    )


_GRADIENTS_OF = Symbol(f"{__name__}.gradients_of", gradients_of, tags=frozenset({Tag.PARTIAL}))
_RECORD_GRAPH = Symbol(f"{__name__}.record_graph", record_graph)


def derive_by_eager(query: Query, reason: str) -> Derivative:
    """The derivative whose forward records an autograd graph that backward runs; possible for every op.

    Args:
        reason: why the derivative cannot be traced ahead of time.
    """
    bound = query.bound
    leaves = list(iterate_leaves((bound.args, bound.kwargs)))
    positions: dict[str, int] = {}
    for position, leaf in enumerate(leaves):
        if isinstance(leaf, TensorProxy) and leaf.name in query.wanted:
            positions.setdefault(leaf.name, position)
    graph = OpaqueProxy(":graph", "EagerGraph")
    forward = replace(_record(bound, tuple(positions.values())), output=(bound.output, graph), location=bound.location)
    storages = count(-1, -1)
    cotangents = {
        proxy.name: stand_in(proxy, f":{proxy.name}_cotangent", next(storages))
        for proxy in bound.outputs()
        if isinstance(proxy, TensorProxy) and proxy.name in query.reached and proxy.requires_grad
    }
    inputs = {leaf.name: leaf for leaf in leaves if isinstance(leaf, TensorProxy)}
    gradients = {name: stand_in(inputs[name], f":{name}_gradient", next(storages)) for name in positions}
    results = [leaf.name if isinstance(leaf, TensorProxy) else "" for leaf in iterate_leaves(bound.output)]
    arguments = (graph, (False,) * len(gradients), tuple([cotangents.get(name) for name in results]))
    by_input: dict[str, Proxy] = dict(gradients)
    backward = BoundSymbol(
        _GRADIENTS_OF, arguments, {}, tuple(by_input.values()), _effects_of_backward(bound), PLAIN, bound.location
    )
    return Derivative(bound, (forward,), (backward,), cotangents, by_input, "eager at run time", reason=reason)


def _effects_of_backward(bound: BoundSymbol) -> Effects:
    """The communication effects of backward, which are known for ops of wrapper subclasses only.

    The backward of any other op that communicates is assumed to do so in the same process groups.
    """
    programs = programs_of(bound.symbol)
    ops = programs[1].symbols if len(programs) > 1 else (bound,)
    return Effects(channels=joined([op.effects for op in ops]).channels)


def require_used_gradients(ops: Sequence[BoundSymbol]) -> tuple[BoundSymbol, ...]:
    """The ops, with each op of `derive_by_eager` changed to return a tensor, not None, for each gradient in use."""
    if not any(op.symbol is _GRADIENTS_OF for op in ops):
        return tuple(ops)
    used = {proxy.name for op in ops for proxy in op.inputs()}

    def required(op: BoundSymbol) -> BoundSymbol:
        if op.symbol is not _GRADIENTS_OF:
            return op
        graph, _, cotangents = op.args
        return replace(op, args=(graph, tuple([proxy.name in used for proxy in op.outputs()]), cotangents))

    return tuple(map(required, ops))


def _record(bound: BoundSymbol, wanted: tuple[int, ...]) -> BoundSymbol:
    assert bound.context is not None
    context = replace(bound.context, grad_enabled=False, inference=False)
    arguments: tuple[Any, ...] = (wanted, bound.args, bound.kwargs)
    effects = replace(bound.effects, external=True)  # each graph serves one backward: calls are never merged
    function = bound.symbol.target
    if Tag.LOCAL in bound.symbol.tags or import_path(function) is None:  # it has no literal in generated code
        symbol = Symbol(
            f"{bound.symbol.name}_with_graph".replace(".", "_"),
            partial(record_graph, function),
            tags=frozenset({Tag.OPAQUE, Tag.LOCAL}),
        )
        return BoundSymbol(symbol, arguments, {}, None, effects, context)
    return BoundSymbol(_RECORD_GRAPH, (function, *arguments), {}, None, effects, context)

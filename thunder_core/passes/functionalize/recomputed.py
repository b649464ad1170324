"""The functional value of a call that backward runs again: then it writes the program's inputs again, as in eager."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace, bodies_of
from thunder_core.ir.tree import iterate_leaves
from thunder_core.passes import operations
from thunder_core.passes.functionalize.emitter import Emitter
from thunder_core.passes.functionalize.memory import View
from thunder_core.passes.functionalize.rules import position_of, requires_grad
from thunder_core.symbols.registry import registry


def call_recomputed(
    call: BoundSymbol, targets: list[TensorProxy], views: list[View], output: Any, emitter: Emitter
) -> list[TensorProxy]:
    """Make ``call`` on copies of the arguments that it writes.

    Args:
        call: on functional values.
        targets: those that it writes.
        views: the objects of the program that they are.
        output: names for its result.
    """
    leaves = list(iterate_leaves((call.args, call.kwargs)))
    positions = tuple([position_of(leaves, target) for target in targets])
    memories = tuple([_memory(view) for view in views])
    operation, arguments, _ = registry.resolve(
        operations.recomputed_call, (call.symbol.target, positions, memories, call.args, call.kwargs), {}
    )
    body, _, *operands = call.args
    inside = {operand.name: proxy.storage for operand, proxy in zip(operands, body.inputs, strict=True)}
    recorded = _recorded(body) if requires_grad(call, emitter) else frozenset()
    copies = [
        emitter.fresh(target, requires_grad=target.requires_grad or inside[target.name] in recorded)
        for target in targets
    ]
    effects = replace(call.effects, mutates=())
    emitter.lines.append(BoundSymbol(operation, arguments, {}, (output, *copies), effects, call.context, call.location))
    return copies


def _memory(view: View) -> tuple[Any, ...] | None:
    """Where the program's inputs have what a view shows, as `operations.recomputed_call` takes it."""
    memory, proxy = view.memory, view.proxy
    if not memory.inputs or proxy.dtype != memory.root.dtype:
        return None
    return memory.root, tuple(proxy.shape), tuple(proxy.stride), view.relative_offset


def _recorded(body: Trace) -> frozenset[int]:
    """The storages in which lines of a body leave values that have a gradient.

    What a call writes besides (running statistics, say) autograd does not record.
    """
    found: set[int] = set()
    for line in body.symbols:
        found |= {proxy.storage for proxy in line.outputs() if isinstance(proxy, TensorProxy) and proxy.requires_grad}
        for inner in bodies_of(line):
            found |= _recorded(inner)
    return frozenset(found)

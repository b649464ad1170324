"""In-place calls in the graphs of regions. Inductor only supports writes to inputs of a graph."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node
from torch.multiprocessing.reductions import StorageWeakRef

from thunder_core.symbols.schema import schema_effects, written_values
from thunder_plugin_inductor.pytorch_internals import OpOverload

_NEW_MEMORY = frozenset(
    {
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.empty_like.default,
        torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default,
    }
)
_COPY = torch.ops.aten.copy_.default


def writes_what_it_made(graph: Graph) -> bool:
    """Whether a call writes to a value of the graph, other than to fill new memory.

    Inductor omits copies as if there were no writes: the call would write to the source of the copy, perhaps an input.
    """
    given = {_memory(node) for node in graph.nodes if node.op == "placeholder"}
    return any(
        _memory(written) not in given and not (node.target is _COPY and written.target in _NEW_MEMORY)
        for node in graph.nodes
        for written in _written_by(node)
    )


def leave_out_copies(graph: Graph) -> bool:
    """Remove clones from a graph without writes, as Inductor does, but before it analyzes aliasing.

    Inductor (at least in PyTorch 2.11) analyzes aliasing with the clones: a view of a clone of a view is an input
    afterwards, and is written in place. The graph must be traced again. Returns False if nothing is removed.
    """
    if any(_written_by(node) for node in graph.nodes):  # a clone may hold the previous value of an input
        return False
    changed = False
    for node in graph.find_nodes(op="call_function", target=torch.ops.aten.clone.default):
        source = node.args[0]
        if node.meta["val"].stride() == source.meta["val"].stride():
            node.replace_all_uses_with(source)
            graph.erase_node(node)
            changed = True
    return changed


def copy_what_is_copied(graph: Graph) -> None:
    """Give the source of each ``copy_`` into new memory a separate value, which needs no kernel.

    Otherwise Inductor treats the copy as an alias of the source, and a write to the copy as one to the source.
    """
    for node in graph.find_nodes(op="call_function", target=_COPY):
        source = node.args[1]
        if isinstance(source, Node):
            with graph.inserting_before(node):
                value = graph.call_function(torch.ops.aten.clone.default, (source,))
            value.meta["val"] = source.meta["val"]
            node.update_arg(1, value)


def _memory(node: Node) -> Any:
    """What is equal for views of one another."""
    value = node.meta["val"]
    return StorageWeakRef(value.untyped_storage()) if isinstance(value, torch.Tensor) else None


def _written_by(node: Node) -> list[Node]:
    effects = schema_effects(node.target) if isinstance(node.target, OpOverload) else None
    return [value for value in written_values(effects or (), node.args, node.kwargs) if isinstance(value, Node)]

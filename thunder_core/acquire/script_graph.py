"""Programs in TorchScript: their graphs are run on the program's values, so that what they call is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, Final

import torch

from thunder_core.acquire import script_operators
from thunder_core.acquire.script_operators import refuse

_NO_SCHEMA: Final = "(no schema)"
_CONTEXTS: Final[dict[str, Callable[[], Any]]] = {
    f"__torch__.torch.autograd.grad_mode.{manager.__name__}": manager
    for manager in (torch.no_grad, torch.enable_grad, torch.inference_mode)
}
"""Context managers that TorchScript has, by the names of their classes there."""


class ScriptGraph:
    """Runs a graph of TorchScript, each node once it is reached.

    Args:
        attribute: gives an attribute of a module, of the value that the graph has for it.

    Branches and loops look at the values of their conditions, as Python does.
    """

    def __init__(self, attribute: Callable[[Any, str], Any]) -> None:
        self._attribute = attribute
        self._values: dict[str, Any] = {}

    def run(self, graph: Any, args: Iterable[Any]) -> Any:
        """The result of a graph without calls of other programs (``inlined_graph``).

        Raises:
            UnsupportedError: a node that is not recorded.
            Exception: what a node raises.
        """
        for value, arg in zip(graph.inputs(), args, strict=True):
            self._values[value.debugName()] = arg
        self._run_nodes(graph.nodes())
        results = [self._values[value.debugName()] for value in graph.outputs()]
        return results[0] if len(results) == 1 else tuple(results)

    def _run_nodes(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            results = self._run_node(node)
            outputs = list(node.outputs())
            if len(outputs) == 1:
                results = (results,)
            for value, result in zip(outputs, results if outputs else (), strict=True):
                self._values[value.debugName()] = result

    def _inputs(self, node: Any) -> list[Any]:
        return [self._values[value.debugName()] for value in node.inputs()]

    def _run_node(self, node: Any) -> Any:
        """What a node gives: a value if it has one output, else one for each output."""
        kind = node.kind()
        if kind in _NODES:
            return getattr(self, _NODES[kind])(node)
        schema = node.schema()
        if schema == _NO_SCHEMA:
            raise refuse(f"has a node {kind}")
        if kind in _READS_NUMBER:
            (source,) = node.inputs()
            made_by = source.node()
            if made_by.kind() == "prim::NumToTensor":  # traced programs make tensors of sizes, and numbers of these
                return self._inputs(made_by)[0]
        return script_operators.call(schema, self._inputs(node))

    # ------------------------------------------------------------ nodes without a schema

    def _constant(self, node: Any) -> Any:
        return node.output().toIValue()

    def _branch(self, node: Any) -> Any:
        (condition,) = self._inputs(node)
        first, second = node.blocks()
        return _of_outputs(node, self._run_block(first if condition else second, ()))

    def _loop(self, node: Any) -> Any:
        most, condition, *carried = self._inputs(node)
        (body,) = node.blocks()
        index = 0
        while index < most and condition:
            condition, *carried = self._run_block(body, (index, *carried))
            index += 1
        return _of_outputs(node, carried)

    def _run_block(self, block: Any, args: Iterable[Any]) -> list[Any]:
        for value, arg in zip(block.inputs(), args, strict=True):
            self._values[value.debugName()] = arg
        self._run_nodes(block.nodes())
        return [self._values[value.debugName()] for value in block.outputs()]

    def _fork(self, node: Any) -> Any:
        graph = node.g("Subgraph")
        return ScriptGraph(self._attribute).run(graph, self._inputs(node))

    def _itself(self, node: Any) -> Any:
        return self._inputs(node)[0]

    def _list(self, node: Any) -> list[Any]:
        return self._inputs(node)

    def _tuple(self, node: Any) -> tuple[Any, ...]:
        if str(node.output().type()).startswith("NamedTuple"):
            raise refuse("makes a named tuple")
        return tuple(self._inputs(node))

    def _dictionary(self, node: Any) -> dict[Any, Any]:
        items = self._inputs(node)
        return dict(zip(items[::2], items[1::2], strict=True))

    def _unpacked(self, node: Any) -> Any:
        items = list(self._inputs(node)[0])
        expected = len(list(node.outputs()))
        if len(items) != expected:
            raise torch.jit.Error(f"Expected {expected} elements in a list but found {len(items)}")
        return _of_outputs(node, items)

    def _item(self, node: Any) -> Any:
        values, index = self._inputs(node)
        return values[index]

    def _nothing(self, node: Any) -> None:
        return None

    def _raise(self, node: Any) -> Any:
        raise torch.jit.Error(self._inputs(node)[0])

    def _object(self, node: Any) -> Any:
        name = str(node.output().type())
        if name not in _CONTEXTS:
            raise refuse(f"makes an object of the class {name.removeprefix('__torch__.')}")
        return SimpleNamespace(manager=_CONTEXTS[name]())

    def _enter(self, node: Any) -> Any:
        (made,) = self._inputs(node)
        return made.manager.__enter__()

    def _exit(self, node: Any) -> Any:
        (made,) = self._inputs(node)
        return made.manager.__exit__(None, None, None)

    def _get(self, node: Any) -> Any:
        (owner,) = self._inputs(node)
        name = node.s("name")
        return getattr(owner, name) if isinstance(owner, SimpleNamespace) else self._attribute(owner, name)

    def _set(self, node: Any) -> None:
        owner, value = self._inputs(node)
        name = node.s("name")
        if not isinstance(owner, SimpleNamespace):
            if isinstance(value, torch.Tensor) and value is self._attribute(owner, name):
                return  # ``self.total += x`` writes into the tensor
            raise refuse(f"assigns to the attribute `{name}` of a module")
        setattr(owner, name, value)


def _of_outputs(node: Any, values: list[Any]) -> Any:
    return values[0] if len(list(node.outputs())) == 1 else values


_READS_NUMBER: Final = frozenset({"aten::Int", "aten::IntImplicit", "aten::ScalarImplicit"})
_NODES: Final = {
    "prim::Constant": "_constant",
    "prim::If": "_branch",
    "prim::Loop": "_loop",
    "prim::fork": "_fork",
    "aten::wait": "_itself",
    "prim::unchecked_cast": "_itself",
    "prim::ListConstruct": "_list",
    "prim::TupleConstruct": "_tuple",
    "prim::DictConstruct": "_dictionary",
    "prim::ListUnpack": "_unpacked",
    "prim::TupleUnpack": "_unpacked",
    "prim::TupleIndex": "_item",
    "prim::Uninitialized": "_nothing",
    "prim::RaiseException": "_raise",
    "prim::CreateObject": "_object",
    "prim::Enter": "_enter",
    "prim::Exit": "_exit",
    "prim::GetAttr": "_get",
    "prim::SetAttr": "_set",
}
"""The methods of `ScriptGraph` that run nodes which are no operators."""

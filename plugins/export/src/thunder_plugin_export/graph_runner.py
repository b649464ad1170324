"""Run the nodes of an exported graph, on the fake tensors of a recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch

from thunder_core.errors import UnsupportedError
from thunder_core.ir.location import SourceLocation
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.frames import location_of_node
from thunder_plugin_export.higher_order import RUN
from thunder_plugin_export.pytorch_internals import HigherOrderOperator, assert_scalar, assert_tensor_metadata

GUARDS: Final = "_guards_fn"
"""The submodule that checks the inputs, which the front end calls before the graph runs."""

_aten = torch.ops.aten
_OF_NUMBERS: Final = frozenset(
    {
        assert_scalar,
        assert_tensor_metadata,
        _aten.sym_constrain_range.default,
        _aten.sym_constrain_range_for_size.default,
    }
)
"""Checks of sizes, numbers and metadata, which are the same in each run of a compiled program."""
_ADVICE: Final = (
    "compile the module that was exported, thunder.jit(model): the front end of Python programs records more",
    "run the exported program by PyTorch: exported.module()",
)


def graphs_of(module: torch.fx.GraphModule) -> Iterator[tuple[str, torch.fx.GraphModule]]:
    """The graph module and the bodies of its higher-order operators, each with the prefix of its attributes' paths."""
    for path, part in module.named_modules():
        if isinstance(part, torch.fx.GraphModule):
            yield path + "." if path else "", part


class GraphRunner:
    """Runs graphs node by node.

    Args:
        module: the graph module of an exported program.

    Attributes:
        tensors: the tensors that replace those of the module, by path.
        node: the node that runs.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._prefixes = {id(part): prefix for prefix, part in graphs_of(module)}
        self._latest: SourceLocation | None = None
        self.node: torch.fx.Node | None = None

    def location(self) -> SourceLocation | None:
        """The line of the user's program that the current node comes from, or else the last node that has one."""
        node = self.node
        if node is not None:
            self._latest = location_of_node(node) or self._latest
        return self._latest

    def run(self, module: torch.fx.GraphModule, *inputs: Any) -> Any:
        """The output of the graph: the argument of its node ``output``.

        Raises:
            UnsupportedError: a node cannot be recorded.
            Exception: of a call.
        """
        values: dict[torch.fx.Node, Any] = {}
        given = iter(inputs)
        for node in module.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                values[node] = next(given)
                continue
            args, kwargs = _argument(node.args, values), _argument(node.kwargs, values)
            if node.op == "output":
                return args[0]
            values[node] = self._value(module, node, args, kwargs)
        raise UnsupportedError("the exported graph has no output", advice=("export the program again",))

    def _value(self, module: torch.fx.GraphModule, node: torch.fx.Node, args: Any, kwargs: Any) -> Any:
        target: Any = node.target
        if node.op == "get_attr":
            return self._attribute(module, target)
        if node.op == "call_module":
            return self._call_module(module, target, args)
        if node.op == "call_method":
            return getattr(args[0], target)(*args[1:], **kwargs)
        if isinstance(target, HigherOrderOperator):
            return self._higher_order(target, args, kwargs)
        if target in _OF_NUMBERS:
            with DisableTorchFunction():
                return target(*args, **kwargs)
        return target(*args, **kwargs)

    def _attribute(self, module: torch.fx.GraphModule, path: str) -> Any:
        known = self.tensors.get(self._prefixes[id(module)] + path)
        if known is not None:
            return known
        value: Any = module
        for name in path.split("."):
            value = getattr(value, name)
        if isinstance(value, torch.fx.GraphModule):
            return value
        raise UnsupportedError(
            f"the exported program uses {path!r}, an object of the class {type(value).__qualname__}",
            location=self.location(),
            advice=_ADVICE,
        )

    def _call_module(self, module: torch.fx.GraphModule, path: str, args: Any) -> Any:
        if path == GUARDS:
            return None
        called = module.get_submodule(path)
        if isinstance(called, torch.fx.GraphModule):
            return self.run(called, *args)
        raise UnsupportedError(
            f"the exported program calls the module {path!r} of the class {type(called).__qualname__}",
            location=self.location(),
            advice=_ADVICE,
        )

    def _higher_order(self, operator: Any, args: Any, kwargs: Any) -> Any:
        run = RUN.get(operator.name())
        result = NotImplemented if run is None else run(self.run, *args, **kwargs)
        if result is NotImplemented:
            raise UnsupportedError(
                f"the exported program has the higher-order operator {operator.name()!r}, which is not recorded",
                location=self.location(),
                advice=_ADVICE,
            )
        return result


def _argument(value: Any, values: Mapping[torch.fx.Node, Any]) -> Any:
    """An argument of a node with values in place of nodes, and builtin containers in place of immutable ones."""
    if isinstance(value, torch.fx.Node):
        return values[value]
    if isinstance(value, tuple | list):
        items = [_argument(item, values) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _argument(item, values) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(*[_argument(item, values) for item in (value.start, value.stop, value.step)])
    return value

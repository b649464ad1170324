"""The graph of a lowered call, as bound symbols."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from thunder_core.errors import LoweringError
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.definitions import producers_of
from thunder_core.ir.effects import PURE, Effects
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.tree import iterate_leaves, map_leaves
from thunder_core.pytorch_internals import FakeTensor, OpOverload, overload_name, schema_of, storage_identity
from thunder_core.symbols.registry import registry

_LARGEST_CONSTANT = 64


class GraphReader:
    """Turns the graph of one call into bound symbols that take its inputs and define its outputs.

    Values in between get made-up names and storage numbers that no trace has: dotted names, negative numbers.

    Args:
        bound: the call.
        proxies: the proxies of the graph's placeholders.
        module: the graph, with fake tensors in its nodes' metadata.
    """

    def __init__(self, bound: BoundSymbol, proxies: list[TensorProxy], module: GraphModule) -> None:
        self.bound = bound
        self.module = module
        self.inputs = iter(proxies)
        self.values: dict[Node, Any] = {}
        self.lines: list[BoundSymbol] = []
        self.storages: dict[int, int] = {}
        self.made = 0
        self.gradients = any(proxy.requires_grad for proxy in bound.outputs() if isinstance(proxy, TensorProxy))
        self.outputs = [proxy for proxy in bound.outputs() if isinstance(proxy, TensorProxy)]

    def read(self) -> tuple[BoundSymbol, ...]:
        results = self._results()
        for node in self.module.graph.nodes:
            self._node(node)
        self._name_results(results)
        return tuple(self.lines)

    def _results(self) -> list[Node]:
        output = next(node for node in self.module.graph.nodes if node.op == "output")
        return list(output.args[0])

    def _node(self, node: Node) -> None:
        if node.op == "placeholder":
            proxy = next(self.inputs)
            self.values[node] = proxy
            self.storages[_address(node.meta["val"])] = proxy.storage
        elif node.op == "get_attr":
            self._constant(node)
        elif node.op == "call_function" and node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.values[source][index]  # type: ignore[index]
        elif node.op == "call_function":
            self._call(node)
        elif node.op != "output":
            raise LoweringError(f"{self.bound.symbol.name} needs a graph node {node.op}")

    def _call(self, node: Node) -> None:
        overload = node.target
        if not isinstance(overload, OpOverload):
            raise LoweringError(f"{self.bound.symbol.name} needs {overload}")
        name = f"torch.ops.{schema_of(overload).name.replace('::', '.')}.{overload_name(overload)}"
        args = tuple(self._argument(item) for item in node.args)
        kwargs = {key: self._argument(item) for key, item in node.kwargs.items()}
        output = map_leaves(self._proxy, node.meta.get("val"))
        self.values[node] = output
        effects = _effects(overload, args, kwargs)
        self.lines.append(BoundSymbol(registry.symbol_named(name), args, kwargs, output, effects))

    def _argument(self, item: Any) -> Any:
        if isinstance(item, Node):
            return self.values[item]
        if isinstance(item, tuple | list):
            kind = tuple if isinstance(item, tuple) else list
            return kind([self._argument(part) for part in item])
        if isinstance(item, slice):
            return slice(*[self._argument(part) for part in (item.start, item.stop, item.step)])
        return item

    def _proxy(self, value: Any) -> Any:
        """A made-up proxy for a tensor that a node computes; literals are kept."""
        if not isinstance(value, torch.Tensor):
            return value
        address = _address(value)
        if address not in self.storages:
            self.storages[address] = -1 - len(self.storages)
        self.made += 1
        differentiable = value.dtype.is_floating_point or value.dtype.is_complex
        return TensorProxy(
            f"made.{self.made}",
            tuple(value.shape),
            value.stride(),
            value.dtype,
            value.device,
            self.gradients and differentiable,
            self.storages[address],
            value.storage_offset(),
        )

    def _constant(self, node: Node) -> None:
        """A tensor that the decomposition made from Python numbers."""
        value = getattr(self.module, str(node.target))
        if not isinstance(value, torch.Tensor) or value.numel() > _LARGEST_CONSTANT or isinstance(value, FakeTensor):
            raise LoweringError(f"{self.bound.symbol.name} needs a constant that is not a small tensor")
        kwargs = {"dtype": value.dtype, "device": value.device}
        output = self._proxy(value)
        self.values[node] = output
        self.lines.append(BoundSymbol(registry.symbol_named("torch.tensor"), (value.tolist(),), kwargs, output))

    def _name_results(self, results: list[Node]) -> None:
        """Let the lines define the outputs of the call under their own names."""
        if len(results) != len(self.outputs):
            raise LoweringError(f"{self.bound.symbol.name} returns {len(results)} tensors when lowered")
        made = producers_of(self.lines)
        renamed: dict[str, TensorProxy] = {}
        storages: dict[int, int] = {}
        for node, output in zip(results, self.outputs, strict=True):
            value = self.values[node]
            if value.name in made and value.name not in renamed:
                renamed[value.name] = output
                storages[value.storage] = output.storage
            else:  # an argument, or one value returned twice
                source = renamed.get(value.name, value)
                alias = registry.symbol_named("torch.ops.aten.alias.default")
                self.lines.append(BoundSymbol(alias, (source,), {}, output))
        self.lines = [_renamed(line, renamed, storages) for line in self.lines]


def _renamed(line: BoundSymbol, names: dict[str, TensorProxy], storages: dict[int, int]) -> BoundSymbol:
    """``line`` with values replaced by name, and storage numbers by number."""

    def rename(leaf: Any) -> Any:
        if not isinstance(leaf, TensorProxy):
            return leaf
        return names.get(leaf.name) or replace(leaf, storage=storages.get(leaf.storage, leaf.storage))

    effects = line.effects
    if effects.mutates:
        mutates = tuple([names[name].name if name in names else name for name in effects.mutates])
        effects = Effects(mutates, effects.random)
    args, kwargs, output = (map_leaves(rename, part) for part in (line.args, line.kwargs, line.output))
    return BoundSymbol(line.symbol, args, kwargs, output, effects)


def _address(tensor: torch.Tensor) -> int:
    """Identity of a fake tensor's storage, which its graph keeps alive."""
    return int(storage_identity(tensor.untyped_storage()))


def _effects(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Effects:
    """Effects of an operator from its schema and tags."""
    written: list[str] = []
    for position, argument in enumerate(schema_of(overload).arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            written += [leaf.name for leaf in iterate_leaves(value) if isinstance(leaf, TensorProxy)]
    random = torch.Tag.nondeterministic_seeded in overload.tags
    return Effects(tuple(dict.fromkeys(written)), random) if written or random else PURE

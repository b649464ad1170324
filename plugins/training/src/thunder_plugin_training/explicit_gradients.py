"""Calls of `torch.Tensor.backward` in a recorded program as ops whose results are the gradients."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from thunder_core.autodiff.activity import records
from thunder_core.autodiff.tensor_hooks import split_requests
from thunder_core.ir.annotation import contiguous_stride
from thunder_core.ir.bound_symbol import BoundSymbol, tensor_inputs_of, tensor_outputs_of, tensors_written_by
from thunder_core.ir.builder import Builder
from thunder_core.ir.effects import Effects
from thunder_core.ir.geometry import dense
from thunder_core.ir.location import at
from thunder_core.ir.proxy import OpaqueProxy, TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.symbols.functions import set_grad
from thunder_core.symbols.registry import registry
from thunder_plugin_training.operations import FREED, GRADIENT_SLOTS, GRADIENTS, STORE_GRADIENTS
from thunder_plugin_training.renaming import Renaming

_Tensor: Any = torch.Tensor  # its properties are descriptors; the stubs declare values
_GRAD: Final = _Tensor.grad.__get__
_REQUIRES_GRAD: Final = torch.Tensor.requires_grad_
_UNKNOWN_TO_TRACES: Final = frozenset(
    {Tag.AUTOGRAD, Tag.AS_RECORDED, Tag.HOOK, Tag.READS_AUTOGRAD, Tag.CHANGES_AUTOGRAD, Tag.RUNS_AUTOGRAD}
)


class LeftToAutograd(Exception):
    """The program cannot be expressed without PyTorch's autograd, for the reason that is the message."""


@dataclass
class _Gradient:
    """A tensor that is, or was, ``grad`` of a leaf.

    Attributes:
        latest: the proxy of its current value.
    """

    latest: TensorProxy


@dataclass(frozen=True)
class _Graph:
    """A part of the autograd graph.

    Attributes:
        inputs: names of the values of inputs of the program that it reaches: each write of one makes a new value.
        ops: positions of the ops that it consists of.
    """

    inputs: frozenset[str] = frozenset()
    ops: frozenset[int] = frozenset()

    def joined(self, *others: _Graph) -> _Graph:
        return _Graph(self.inputs.union(*[g.inputs for g in others]), self.ops.union(*[g.ops for g in others]))


def with_explicit_gradients(trace: Trace, gradients: Mapping[str, str | None]) -> Trace:
    """The program with an op `GRADIENTS` in place of each call of ``backward``.

    Reads of ``grad`` become the values that these ops compute. Where ``grad`` of a leaf is another tensor at the end
    than at the beginning, the last op assigns it.

    Args:
        gradients: as in `thunder_core.contract.Recording`.

    Raises:
        LeftToAutograd: the program does more with autograd.
    """
    for request in split_requests(trace)[1]:
        raise LeftToAutograd(f"{request.symbol.name} replaces gradients while backward runs{at(request.location)}")
    walk = _Walk(trace, gradients)
    for op in trace.symbols:
        walk.add(op)
    return walk.result()


@dataclass
class _Walk:
    """One pass over the program, in its order.

    Attributes:
        leaf_of: the leaf that is the object of a name, by names of proxies.
        gradient_of: the gradients that are objects of names.
        current: ``grad`` of each leaf now.
        known: leaves whose ``grad`` the program has assigned.
        graphs: the part of the graph that each value depends on, by names of proxies.
        used, freed: positions of the ops whose graph a backward has used, and of those whose graph it has freed.
    """

    trace: Trace
    gradients: Mapping[str, str | None]
    ops: list[BoundSymbol] = field(default_factory=list)
    leaf_of: dict[str, str] = field(default_factory=dict)
    gradient_of: dict[str, _Gradient] = field(default_factory=dict)
    current: dict[str, _Gradient | None] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    graphs: dict[str, _Graph] = field(default_factory=dict)
    used: set[int] = field(default_factory=set)
    freed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.builder = Builder.of(self.trace)
        self.inputs = {proxy.name: proxy for proxy in self.trace.inputs if isinstance(proxy, TensorProxy)}
        self.renaming = Renaming()
        self.latest = dict(self.inputs)
        self.of_storage: dict[int, list[str]] = {}
        self.initial: dict[str, _Gradient | None] = {}
        for name, gradient in self.gradients.items():
            self.leaf_of[name] = name
            if gradient:
                self.gradient_of.setdefault(gradient, _Gradient(self.inputs[gradient]))
            self.initial[name] = self.gradient_of[gradient] if gradient else None
        self.current.update(self.initial)
        for proxy in self.inputs.values():
            if proxy.requires_grad:
                self.graphs[proxy.name] = _Graph(frozenset([proxy.name]))

    # ---- ops ---------------------------------------------------------------------------------------------------------

    def add(self, op: BoundSymbol) -> None:
        """Add an op of the program."""
        op = self.renaming.op(op)
        target = op.symbol.target
        if target is torch.Tensor.backward or target is torch.autograd.backward:
            self._backward(op)
        elif target == _GRAD:
            self._read(op)
        elif target is set_grad:
            self._assign(op)
        elif target is _REQUIRES_GRAD and self._changes_nothing(op):
            self._same_object(op)
        else:
            reason = self._reason(op)
            if reason is not None:
                raise LeftToAutograd(f"{op.symbol.name} {reason}{at(op.location)}")
            self._follow(op)
            self.ops.append(op)

    def _reason(self, op: BoundSymbol) -> str | None:
        """Why a functional trace cannot express the op; None if it can."""
        if not _UNKNOWN_TO_TRACES.isdisjoint(op.symbol.tags):
            return "reads or changes the autograd graph"
        if Tag.UNGUARDED in op.symbol.tags or (Tag.LOCAL in op.symbol.tags and (self.used or self.known)):
            return "may read gradients"  # which are assigned when the program ends
        if Tag.HIGHER_ORDER in op.symbol.tags:  # the region would be kept for backward as a part of the program
            return "is computed again in backward"
        return None

    def _follow(self, op: BoundSymbol) -> None:
        """Note what the results depend on, and which objects they are."""
        written = tensors_written_by(op)
        for result in tensor_outputs_of(op):
            self.of_storage.setdefault(result.storage, []).append(result.name)
        objects = {(proxy.storage, proxy.geometry): proxy for proxy in written}
        for result in tensor_outputs_of(op):
            before = objects.get((result.storage, result.geometry))
            if before is not None:
                self._continue(before, result)
        if not records(op, self.trace):
            return
        graph = self._graph_of([proxy for proxy in tensor_inputs_of(op) if proxy.requires_grad], len(self.ops))
        if graph is None:
            return
        for result in tensor_outputs_of(op):
            if result.requires_grad:
                self.graphs[result.name] = graph
        for proxy in written:  # views of what was written, and what it is a view of
            for name in self.of_storage.get(proxy.storage, ()):
                self.graphs[name] = self.graphs[name].joined(graph) if name in self.graphs else graph

    def _graph_of(self, inputs: list[TensorProxy], position: int) -> _Graph | None:
        graphs = [self.graphs[proxy.name] for proxy in inputs if proxy.name in self.graphs]
        return _Graph(ops=frozenset([position])).joined(*graphs) if graphs else None

    def _continue(self, before: TensorProxy, after: TensorProxy) -> None:
        """``after`` is the same object as ``before``."""
        leaf, gradient = self.leaf_of.get(before.name), self.gradient_of.get(before.name)
        if leaf is not None and after.name != before.name:
            self.leaf_of[after.name] = leaf
            self.latest[leaf] = after
            self.graphs[after.name] = _Graph(frozenset([after.name]))
        if gradient is not None:
            self.gradient_of[after.name] = gradient
            gradient.latest = after

    def _same_object(self, op: BoundSymbol) -> None:
        """Leave out an op that returns its first argument, which it does not change."""
        argument, (result,) = op.args[0], tensor_outputs_of(op)
        self.renaming.replace(result, argument)

    def _changes_nothing(self, op: BoundSymbol) -> bool:
        tensor, wanted = op.args[0], op.args[1] if len(op.args) > 1 else op.kwargs.get("requires_grad", True)
        return isinstance(tensor, TensorProxy) and tensor.requires_grad is wanted and len(tensor_outputs_of(op)) == 1

    # ---- gradients --------------------------------------------------------------------------------------------------

    def _leaf(self, op: BoundSymbol) -> str:
        """The leaf whose ``grad`` an op reads or assigns."""
        tensor = op.args[0]
        leaf = self.leaf_of.get(tensor.name) if isinstance(tensor, TensorProxy) else None
        if leaf is None:
            raise LeftToAutograd(f"the program uses the gradient of {tensor}, which may have hooks{at(op.location)}")
        return leaf

    def _read(self, op: BoundSymbol) -> None:
        leaf = self._leaf(op)
        gradient = self.current[leaf]
        (result,) = tensor_outputs_of(op)
        if gradient is None or result.requires_grad:
            raise LeftToAutograd(f"the program reads the gradient of {leaf}, which is not known{at(op.location)}")
        latest = gradient.latest
        if (latest.shape, latest.stride, latest.dtype) != (result.shape, result.stride, result.dtype):
            raise LeftToAutograd(f"the gradient of {leaf} has another layout than its tensor{at(op.location)}")
        self.renaming.replace(result, latest)

    def _assign(self, op: BoundSymbol) -> None:
        leaf, value = self._leaf(op), op.args[1]
        if value is None:
            self.current[leaf] = None
        elif isinstance(value, TensorProxy) and value.name in self.gradient_of and not value.requires_grad:
            self.current[leaf] = self.gradient_of[value.name]
        elif isinstance(value, TensorProxy) and not value.requires_grad and value.name not in self.leaf_of:
            self.current[leaf] = self.gradient_of[value.name] = _Gradient(value)
        else:
            raise LeftToAutograd(f"the program assigns a gradient of {leaf} that requires grad{at(op.location)}")
        self.known.add(leaf)
        self._same_object(op)

    def _backward(self, op: BoundSymbol) -> None:
        output, cotangent, retains = _arguments(op)
        graph = self.graphs.get(output.name, _Graph())
        if not graph.inputs or not output.requires_grad:
            raise LeftToAutograd(f"backward of {output.name} reaches no input{at(op.location)}")
        if graph.ops & self.used:
            raise LeftToAutograd(f"two calls of backward use the same part of the graph{at(op.location)}")
        values = {self.leaf_of.get(name, name): name for name in graph.inputs}
        reached = [name for name in self.inputs if name in values]
        for name in reached:
            if name not in self.gradients:
                raise LeftToAutograd(f"{name} has hooks, or is not a leaf of the autograd graph{at(op.location)}")
            if self.latest[name].name not in graph.inputs or len(values) < len(graph.inputs):
                raise LeftToAutograd(f"the program writes {name} before backward uses it{at(op.location)}")
            if self.gradients[name] == "" and name not in self.known:
                raise LeftToAutograd(f"the gradient of {name} is not known{at(op.location)}")
        self.used |= graph.ops
        self.freed |= frozenset() if retains else graph.ops
        leaves = [self.latest[name] for name in reached]
        results = [self._new_gradient(self.inputs[name]) for name in reached]
        context = None if op.context is None else replace(op.context, grad_enabled=True)
        args = (output, leaves) if cotangent is None else (output, leaves, cotangent)
        self.ops.append(BoundSymbol(GRADIENTS, args, {}, results, context=context, location=op.location))
        for name, result in zip(reached, results, strict=True):
            self._accumulate(self.inputs[name], result, op)

    def _new_gradient(self, leaf: TensorProxy) -> TensorProxy:
        shape = tuple(leaf.shape)
        stride = leaf.stride if dense(leaf) else contiguous_stride(shape)
        return replace(
            leaf,
            name=self.builder.name(f"{leaf.name}_gradient"),
            stride=tuple(stride),
            requires_grad=False,
            storage=self.builder.new_storage(),
            offset=0,
        )

    def _accumulate(self, leaf: TensorProxy, result: TensorProxy, op: BoundSymbol) -> None:
        """Add a new gradient to ``grad`` of the leaf, in place if there is one, as autograd does."""
        gradient = self.current[leaf.name]
        if gradient is None:
            self.current[leaf.name] = self.gradient_of[result.name] = _Gradient(result)
            return
        before = gradient.latest
        symbol, args, kwargs = registry.resolve(torch.Tensor.add_, (before, result), {})
        after = replace(before, name=self.builder.name(f"{leaf.name}_gradient"))
        context = replace(op.context or self.trace.context, grad_enabled=False)
        added = BoundSymbol(symbol, args, kwargs, after, Effects(mutates=(before.name,)), context, op.location)
        self._follow(added)
        self.ops.append(added)

    # ---- the end ----------------------------------------------------------------------------------------------------

    def result(self) -> Trace:
        """The program."""
        output = tuple([self._returned(self.renaming.value(leaf)) for leaf in self.trace.output])
        changed = [name for name in self.gradients if self._is_assigned(name)]
        if changed:
            slots = OpaqueProxy(self.builder.name("gradient_slots"), "GradientSlots")
            tensors = [self.inputs[name] for name in changed]
            latest = [None if one is None else one.latest for one in map(self.current.__getitem__, changed)]
            cleared = [name in self.known for name in changed]
            self.ops.insert(0, BoundSymbol(GRADIENT_SLOTS, (tensors,), {}, slots))
            effects = Effects(external=True)
            self.ops.append(BoundSymbol(STORE_GRADIENTS, (slots, latest, cleared), {}, None, effects))
        return replace(self.trace.with_symbols(self.ops, "inline_backward"), output=output)

    def _is_assigned(self, name: str) -> bool:
        return (self.gradients[name] == "" and name in self.known) or self.current[name] is not self.initial[name]

    def _returned(self, leaf: Any) -> Any:
        """A result of the program without its graph, which backward has freed."""
        if not isinstance(leaf, TensorProxy) or not leaf.requires_grad or leaf.name in self.leaf_of:
            return leaf
        if leaf.name in self.inputs:
            return leaf
        if not self.graphs.get(leaf.name, _Graph()).ops & self.freed:
            raise LeftToAutograd(f"the program returns {leaf.name}, which has a graph that backward did not use")
        result = replace(leaf, name=self.builder.name(leaf.name, numbered=True), requires_grad=False)
        self.ops.append(BoundSymbol(FREED, (leaf,), {}, result))
        return result


def _arguments(op: BoundSymbol) -> tuple[TensorProxy, TensorProxy | None, bool]:
    """The tensor that backward starts from, its cotangent, and whether the graph is kept.

    Raises:
        LeftToAutograd: the call has other arguments.
    """
    bound = inspect.signature(op.symbol.target).bind(*op.args, **op.kwargs)
    bound.apply_defaults()
    given = bound.arguments
    method = op.symbol.target is torch.Tensor.backward
    output, cotangent = (given["self"], given["gradient"]) if method else (given["tensors"], given["grad_tensors"])
    if isinstance(output, list | tuple) and len(output) == 1:
        (output,) = output
        cotangent = cotangent[0] if isinstance(cotangent, list | tuple) and len(cotangent) == 1 else cotangent
    plain = given["create_graph"] is False and given["inputs"] is None and given.get("grad_variables") is None
    of_graph = isinstance(cotangent, TensorProxy) and cotangent.requires_grad
    fits = isinstance(output, TensorProxy) and isinstance(cotangent, TensorProxy | None) and not of_graph
    if not plain or not fits:
        raise LeftToAutograd(f"backward has arguments other than one tensor and its gradient{at(op.location)}")
    return output, cotangent, bool(given["retain_graph"])

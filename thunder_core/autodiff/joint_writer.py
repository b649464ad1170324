"""Construction of the joint trace: the ops of the program with their residuals, then the ops of backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.autodiff.activity import Activity, records
from thunder_core.autodiff.checkpoint import Inlined
from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query, stand_in, sum_stand_in
from thunder_core.autodiff.derivatives.derive import derive
from thunder_core.autodiff.joint import Origin
from thunder_core.executors.decision import Decision
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import Size
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_storages import StoragePosition
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, slots=True)
class DifferentiatedOp:
    """One op of the program with its derivative.

    Attributes:
        bound: the op of the program.
        query: the request for its derivative.
        derivative: the derivative, expressed for an equal op.
        values: the values of the joint trace, by their names in the derivative.
        storages: the positions of storages in the joint trace, by their numbers in the derivative.
    """

    bound: BoundSymbol
    query: Query
    derivative: Derivative
    values: dict[str, Proxy]
    storages: dict[int, StoragePosition]

    @property
    def outputs(self) -> dict[str, Proxy]:
        """The outputs of the op, by their names in the derivative."""
        models = [proxy.name for proxy in self.derivative.bound.outputs()]
        return dict(zip(models, self.bound.outputs(), strict=True))

    @property
    def inputs(self) -> dict[str, Proxy]:
        """The inputs of the op, by their names in the derivative."""
        models = [proxy.name for proxy in self.derivative.bound.inputs()]
        return dict(zip(models, self.bound.inputs(), strict=True))

    def other_strides(self, cotangents: Mapping[str, TensorProxy]) -> dict[str, tuple[Size, ...]]:
        """Strides of cotangents that differ from those that the derivative expects, by output of the op."""
        expected = self.derivative.cotangents
        return {
            proxy.name: cotangents[proxy.name].stride
            for name, proxy in self.outputs.items()
            if proxy.name in cotangents and cotangents[proxy.name].stride != expected[name].stride
        }

    def with_derivative(self, other: Derivative) -> DifferentiatedOp:
        """The op with another derivative if that has the same ops in forward; otherwise unchanged.

        The ops of forward are already part of the joint trace.
        """
        if [op.symbol for op in other.forward] != [op.symbol for op in self.derivative.forward]:
            return self
        values, storages = correspondence(other.bound, self.bound)
        for new, old in zip(other.forward, self.derivative.forward, strict=True):
            for new_proxy, old_proxy in zip(new.outputs(), old.outputs(), strict=True):
                values.setdefault(new_proxy.name, self.values[old_proxy.name])
                if isinstance(new_proxy, TensorProxy) and isinstance(old_proxy, TensorProxy):
                    storages.setdefault(new_proxy.storage, self.storages[old_proxy.storage])
        return DifferentiatedOp(self.bound, self.query, other, values, storages)

    def without(self, absent: frozenset[str]) -> DifferentiatedOp:
        """The op without cotangents for these outputs, named as in the derivative. See `Derivative.without`."""
        return replace(self, derivative=self.derivative.without(absent))


def correspondence(model: BoundSymbol, bound: BoundSymbol) -> tuple[dict[str, Proxy], dict[int, StoragePosition]]:
    """Maps from the values and storages of ``model`` to the values and storage positions of ``bound``, an equal op."""
    values: dict[str, Proxy] = {}
    storages: dict[int, StoragePosition] = {}
    for old, new in zip((*model.inputs(), *model.outputs()), (*bound.inputs(), *bound.outputs()), strict=True):
        values[old.name] = new
        if isinstance(old, TensorProxy) and isinstance(new, TensorProxy):
            storages[old.storage] = StoragePosition.between(old, new)
    return values, storages


class JointEmitter:
    """Collects the ops of the joint trace, and instantiates those of derivatives.

    Attributes:
        ops: the ops so far.
        builder: creates names and storages that are unused in the trace.
        context: modes of the joint trace: those of ``trace``, but with grad mode off.
    """

    def __init__(self, trace: Trace) -> None:
        self.ops: list[BoundSymbol] = []
        self.context = replace(trace.context, grad_enabled=False)
        self.builder = Builder.of(trace, bodies=False)

    def add(self, bound: BoundSymbol) -> None:
        """Append one op unchanged."""
        self.ops.append(bound)

    def without_grad(self, op: BoundSymbol, user: BoundSymbol | None = None) -> BoundSymbol:
        """An op with its modes, but with grad mode off; with the source location of ``user`` if given."""
        location = op.location if user is None else user.location
        context = None if op.context is None else replace(op.context, grad_enabled=False)
        return replace(op, context=None if context == self.context else context, location=location)

    def instantiate(
        self,
        ops: Iterable[BoundSymbol],
        known: Mapping[str, Proxy],
        storages: dict[int, StoragePosition],
        stem: str,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Proxy]:
        """Append ops of a derivative, with its values replaced by values of the joint trace.

        Args:
            known: values that exist already in the joint trace, by their names in the derivative.
            storages: positions in the trace of storages of the derivative, by their numbers; new storages are added.
            stem: the stem of the names of new values.
            names: names for certain new values, by their names in the derivative.

        Returns:
            All values by their names in the derivative.
        """
        values = dict(known)

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, PROXY_TYPES):
                return leaf
            if leaf.name not in values:
                values[leaf.name] = self._new(leaf, storages, stem, names or {})
            return values[leaf.name]

        for op in ops:
            effects = op.effects
            op = replace(op.map_arguments(value), output=map_leaves(value, op.output), effects=effects)
            self.ops.append(op)
        return values

    def _new(self, proxy: Proxy, storages: dict[int, StoragePosition], stem: str, names: Mapping[str, str]) -> Proxy:
        wanted = names.get(proxy.name)
        name = self.builder.name(stem, numbered=True) if wanted is None else self.builder.name(wanted)
        if not isinstance(proxy, TensorProxy):
            return replace(proxy, name=name)
        if proxy.storage not in storages:
            storages[proxy.storage] = StoragePosition(self.builder.new_storage())
        return replace(storages[proxy.storage].moved(proxy), name=name)


class Cotangents:
    """The cotangent accumulated so far for each value of a program, while the ops of backward are emitted.

    Args:
        emitter: collects the ops that accumulate.

    Attributes:
        known: the cotangents, by name of the value.
    """

    def __init__(self, emitter: JointEmitter) -> None:
        self.emitter = emitter
        self.known: dict[str, TensorProxy] = {}

    def given(self, output: TensorProxy) -> TensorProxy:
        """The cotangent of an output of the program, as a new input of the joint trace."""
        self.known[output.name] = self._new(output, self.emitter.builder.name(f"{output.name}_cotangent"))
        return self.known[output.name]

    def add(self, value: Proxy, gradient: TensorProxy, user: BoundSymbol) -> None:
        """Accumulate ``gradient``, computed by the backward of ``user``, into the cotangent of ``value``."""
        known = self.known.get(value.name)
        if known is not None:
            name = self.emitter.builder.name(f"{value.name}_cotangent", numbered=True)
            total = sum_stand_in(known, gradient, name, self.emitter.builder.new_storage())
            self._call(torch.add, (known, gradient), {}, total, user)
            gradient = total
        self.known[value.name] = gradient

    def zeros(self, value: Proxy, user: BoundSymbol) -> TensorProxy:
        """A zero cotangent, for an output without cotangent of an op that has cotangents for other outputs."""
        assert isinstance(value, TensorProxy)
        zeros = self._new(value, self.emitter.builder.name(f"{value.name}_cotangent", numbered=True))
        self._call(torch.zeros, (tuple(value.shape),), {"dtype": value.dtype, "device": value.device}, zeros, user)
        return zeros

    def _new(self, like: TensorProxy, name: str) -> TensorProxy:
        return stand_in(like, name, self.emitter.builder.new_storage())

    def _call(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        output: TensorProxy,
        user: BoundSymbol,
    ) -> None:
        symbol, args, kwargs = registry.resolve(function, args, kwargs)
        self.emitter.add(self.emitter.without_grad(BoundSymbol(symbol, args, kwargs, output, context=PLAIN), user))


class JointWriter:
    """Writes the joint trace. Call `forward`, then `cotangent_inputs`, then `backward`.

    Args:
        trace: the program.
        activity: the values of the program to differentiate.
        executors: executors whose derivatives take precedence for the ops that they claim.
        regions: the program with its checkpoint regions inlined.

    Attributes:
        emitter: collects the ops.
        cotangents: the cotangents of the program's values.
        recomputed: names of the values of checkpoint regions that backward recomputes, including residuals.
        origins: number of ops by the origin of their derivative.
        offered: the ops that are differentiated, with the decisions of the executors.
    """

    def __init__(self, trace: Trace, activity: Activity, executors: Sequence[Executor], regions: Inlined) -> None:
        self.trace = trace
        self.activity = activity
        self.executors = executors
        self.emitter = JointEmitter(trace)
        self.cotangents = Cotangents(self.emitter)
        self.regions = regions
        self.recomputed = set(regions.recomputed)
        self.origins: Counter[Origin] = Counter()
        self.offered: list[tuple[BoundSymbol, tuple[Decision, ...]]] = []
        self._differentiated: list[DifferentiatedOp] = []

    def forward(self) -> None:
        """Emit the ops of the program, with the ops that compute residuals."""
        for bound in self.trace.symbols:
            reached = frozenset([p.name for p in bound.outputs() if p.name in self.activity.reached])
            wanted = frozenset([p.name for p in bound.inputs() if p.name in self.activity.active])
            if reached and wanted and records(bound, self.trace):
                self._forward(bound, wanted, reached)
            else:
                self.emitter.add(self.emitter.without_grad(bound))

    def cotangent_inputs(self) -> tuple[TensorProxy, ...]:
        """Add and return the inputs of the joint trace that hold the gradients of outputs."""
        outputs = [self.trace.output[index] for index in self.activity.outputs]
        return tuple([self.cotangents.given(output) for output in outputs])

    def backward(self) -> None:
        """Emit the ops of backward, in reverse order of the program's ops."""
        for op in reversed(self._differentiated):
            absent = frozenset([name for name, proxy in op.outputs.items() if proxy.name not in self.cotangents.known])
            if op.derivative.cotangents.keys() - absent:
                self._backward(op, absent)

    def _forward(self, bound: BoundSymbol, wanted: frozenset[str], reached: frozenset[str]) -> None:
        query = Query(replace(bound, context=bound.context or self.trace.context), wanted, reached)
        derivative = derive(query, self.executors)
        self.origins[Origin(bound.symbol.name, derivative.source, derivative.reason)] += 1
        if derivative.decisions:
            self.offered.append((bound, derivative.decisions))
        values, storages = correspondence(derivative.bound, bound)
        before = len(self.emitter.ops)
        stem = next(iter(bound.outputs())).name
        for op in derivative.forward:
            if op is derivative.bound:
                self.emitter.add(self.emitter.without_grad(bound))
            else:
                values = self.emitter.instantiate([self.emitter.without_grad(op, bound)], values, storages, stem)
        if not reached.isdisjoint(self.regions.computed):
            results = {proxy.name for proxy in bound.outputs()}
            for op in self.emitter.ops[before:]:
                self.recomputed.update(proxy.name for proxy in op.outputs() if proxy.name not in results)
        self._differentiated.append(DifferentiatedOp(bound, query, derivative, values, storages))

    def _backward(self, op: DifferentiatedOp, absent: frozenset[str]) -> None:
        if op.derivative.along is not None:
            op = op.without(absent & op.derivative.cotangents.keys())
        known, user, outputs = self.cotangents.known, op.bound, op.outputs
        given = {
            outputs[name].name: known.get(outputs[name].name) or self.cotangents.zeros(outputs[name], user)
            for name in op.derivative.cotangents
        }
        op = self._fitting(op, given)
        derivative, outputs, inputs = op.derivative, op.outputs, op.inputs
        values, storages = dict(op.values), dict(op.storages)
        for name, placeholder in derivative.cotangents.items():
            cotangent = given[outputs[name].name]
            values[placeholder.name] = cotangent
            storages[placeholder.storage] = StoragePosition.between(placeholder, cotangent)
        names = {
            proxy.name: f"{inputs[name].name}_cotangent"
            for name, proxy in derivative.gradients.items()
            if inputs[name].name not in known
        }
        stem = f"{user.outputs()[0].name}_cotangent"
        ops = [self.emitter.without_grad(written, user) for written in derivative.backward]
        values = self.emitter.instantiate(ops, values, storages, stem, names)
        for name, proxy in derivative.gradients.items():
            gradient = values.get(proxy.name, proxy)
            assert isinstance(gradient, TensorProxy)
            self.cotangents.add(inputs[name], gradient, user)

    def _fitting(self, op: DifferentiatedOp, cotangents: dict[str, TensorProxy]) -> DifferentiatedOp:
        """The op with a derivative for the strides of these cotangents, which may be expanded, for example.

        Unchanged if that derivative has another forward: the ops of forward are already part of the joint trace.
        """
        strides = op.other_strides(cotangents)
        if not strides or op.derivative.along is not None:
            return op
        return op.with_derivative(derive(replace(op.query, cotangent_strides=strides), self.executors))

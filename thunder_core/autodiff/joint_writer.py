"""Construction of the joint trace: the ops of the program with their residuals, then the ops of backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.autodiff.activity import Activity, records
from thunder_core.autodiff.derivatives.derivative import PLAIN, Derivative, Query, stand_in, sum_stand_in
from thunder_core.autodiff.derivatives.derive import derive
from thunder_core.autodiff.derivatives.rules import Rule, all_rules, rule_name
from thunder_core.autodiff.joint import Origin
from thunder_core.executors.decision import Decision
from thunder_core.executors.executor import Executor
from thunder_core.ir.annotation import contiguous_stride
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder, Inlining
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.size import Size
from thunder_core.ir.trace import Trace
from thunder_core.passes.checkpoint_regions import Inlined
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, slots=True)
class DifferentiatedOp:
    """One op of the program with its derivative.

    Attributes:
        bound: the op of the program.
        query: the request for its derivative.
        derivative: the derivative, expressed for an equal op.
        inlining: the mapping from values of the derivative to those of the joint trace.
    """

    bound: BoundSymbol
    query: Query
    derivative: Derivative
    inlining: Inlining

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

    def with_derivative(self, other: Derivative, inlining: Inlining) -> DifferentiatedOp:
        """The op with another derivative if that has the same ops in forward; otherwise unchanged.

        The ops of forward are already part of the joint trace.

        Args:
            inlining: the mapping of the values of ``other``; those of its forward are added.
        """
        if [op.symbol for op in other.forward] != [op.symbol for op in self.derivative.forward]:
            return self
        for new, old in zip(other.forward, self.derivative.forward, strict=True):
            inlining.add(zip(new.outputs(), map(self.inlining.value, old.outputs()), strict=True))
        return DifferentiatedOp(self.bound, self.query, other, inlining)

    def without(self, absent: frozenset[str]) -> DifferentiatedOp:
        """The op without cotangents for these outputs, named as in the derivative. See `Derivative.without`."""
        return replace(self, derivative=self.derivative.without(absent))


class JointEmitter:
    """Collects the ops of the joint trace, and inlines those of derivatives.

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

    def inlining(self, model: BoundSymbol, bound: BoundSymbol) -> Inlining:
        """A mapping from the values of a derivative of ``model`` to those of the joint trace, for an equal op."""
        pairs = zip(model.proxies(), bound.proxies(), strict=True)
        stem = next(iter(bound.outputs())).name
        return Inlining(pairs, lambda _: self.builder.name(stem, numbered=True), self.builder.new_storage)


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

    def zero_gradient(
        self, value: Proxy, gradient: TensorProxy, cotangent: TensorProxy, user: BoundSymbol
    ) -> TensorProxy:
        """Zeros that depend on ``cotangent``, in place of a gradient of ``value`` that does not: backward is linear.

        Backward from other outputs of the program then does without it, and backward from this one has it.
        """
        builder = self.emitter.builder

        def new() -> TensorProxy:
            name = builder.name(f"{value.name}_cotangent", numbered=True)
            return replace(gradient, name=name, storage=builder.new_storage(), offset=0)

        kwargs = {"dtype": gradient.dtype, "device": gradient.device}
        shape, stride, zeros = tuple(gradient.shape), tuple(gradient.stride), new()
        if stride == contiguous_stride(shape):
            self._call(torch.Tensor.new_zeros, (cotangent, shape), kwargs, zeros, user)
            return zeros
        empty = new()
        self._call(torch.Tensor.new_empty_strided, (cotangent, shape, stride), kwargs, empty, user)
        self._call(torch.zeros_like, (empty,), {}, zeros, user)
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
        rules: the hand-written rules of the symbols of these ops, by the names of rules; None for those without.
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
        self.rules: dict[str, Rule | None] = {}
        self._all_rules = all_rules()
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
        name = rule_name(bound.symbol)
        rule = self.rules[name] = self._all_rules.get(name)
        query = Query(replace(bound, context=bound.context or self.trace.context), wanted, reached, rule)
        derivative = derive(query, self.executors)
        self.origins[Origin(bound.symbol.name, derivative.source, derivative.reason)] += 1
        if derivative.decisions:
            self.offered.append((bound, derivative.decisions))
        inlining = self.emitter.inlining(derivative.bound, bound)
        before = len(self.emitter.ops)
        for op in derivative.forward:
            inlined = bound if op is derivative.bound else inlining.op(op)
            self.emitter.add(self.emitter.without_grad(inlined, bound))
        if not reached.isdisjoint(self.regions.computed):
            results = {proxy.name for proxy in bound.outputs()}
            for op in self.emitter.ops[before:]:
                self.recomputed.update(proxy.name for proxy in op.outputs() if proxy.name not in results)
        self._differentiated.append(DifferentiatedOp(bound, query, derivative, inlining))

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
        names = {
            proxy.name: f"{inputs[name].name}_cotangent"
            for name, proxy in derivative.gradients.items()
            if inputs[name].name not in known
        }
        stem, builder = f"{user.outputs()[0].name}_cotangent", self.emitter.builder

        def new_name(proxy: Proxy) -> str:
            return builder.name(names[proxy.name]) if proxy.name in names else builder.name(stem, numbered=True)

        inlining = op.inlining.copy(new_name)
        inlining.add((placeholder, given[outputs[name].name]) for name, placeholder in derivative.cotangents.items())
        dependent = {proxy.name for proxy in given.values()}
        for written in derivative.backward:
            ran = inlining.op(written)
            self.emitter.add(self.emitter.without_grad(ran, user))
            if not dependent.isdisjoint([proxy.name for proxy in ran.inputs()]):
                dependent.update([proxy.name for proxy in ran.outputs()])
        for name, proxy in derivative.gradients.items():
            gradient = inlining.value(proxy)
            assert isinstance(gradient, TensorProxy)
            if gradient.name not in dependent:
                gradient = self.cotangents.zero_gradient(inputs[name], gradient, next(iter(given.values())), user)
            self.cotangents.add(inputs[name], gradient, user)

    def _fitting(self, op: DifferentiatedOp, cotangents: dict[str, TensorProxy]) -> DifferentiatedOp:
        """The op with a derivative for the strides of these cotangents, which may be expanded, for example.

        Unchanged if that derivative has another forward: the ops of forward are already part of the joint trace.
        """
        strides = op.other_strides(cotangents)
        if not strides or op.derivative.along is not None:
            return op
        other = derive(replace(op.query, cotangent_strides=strides), self.executors)
        return op.with_derivative(other, self.emitter.inlining(other.bound, op.bound))

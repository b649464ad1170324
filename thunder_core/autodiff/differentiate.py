"""The pass: from a program to its joint trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from thunder_core.autodiff.activity import Activity, records
from thunder_core.autodiff.by_eager import require_what_is_used
from thunder_core.autodiff.checkpoint import inline_checkpoints
from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, dense_stride
from thunder_core.autodiff.derive import derive
from thunder_core.autodiff.emitter import JointEmitter
from thunder_core.autodiff.joint import Joint
from thunder_core.autodiff.tensor_hooks import place_tensor_hooks
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.pass_manager import Pass
from thunder_core.passes.proxies import inputs_of, outputs_of
from thunder_core.symbols.registry import registry


@dataclass(frozen=True)
class Differentiate(Pass[Joint | None]):
    """Appends to a program the lines that compute gradients of its inputs from cotangents of its outputs.

    The result is None for a program none of whose outputs depends, through lines that autograd records, on an input that
    requires grad. The lines of the joint trace run without recording gradients.

    Attributes:
        executors: asked first for the derivatives of the lines they claim.
        overwritten: names of inputs that are written after the program.
    """

    consumes: ClassVar[frozenset[Stage]] = frozenset({Stage.FUNCTIONAL})

    executors: Sequence[Executor] = ()
    overwritten: frozenset[str] = frozenset()

    def run(self, trace: Trace) -> Joint | None:
        trace, recomputed = inline_checkpoints(trace)
        trace = place_tensor_hooks(trace)
        activity = Activity.of(trace)
        if not activity.outputs:
            return None
        writer = _Writer(trace, activity, self.executors, recomputed)
        writer.forward()
        forward_lines = len(writer.emitter.lines)
        cotangents = writer.cotangent_inputs()
        writer.backward()
        sources = tuple(
            [p for p in trace.inputs if isinstance(p, TensorProxy) and p.requires_grad and p.name in activity.active]
        )
        gradients = tuple([writer.cotangents.get(proxy.name) for proxy in sources])
        joint = Trace(
            "joint",
            (*trace.inputs, *cotangents),
            require_what_is_used(writer.emitter.lines),
            (tuple(trace.output), gradients),
            Stage.FUNCTIONAL,
            self.name,
            _without_gradients(trace.context),
        )
        constant = [
            index for index, p in enumerate(trace.output) if isinstance(p, TensorProxy) and not p.requires_grad
        ]
        return Joint(
            joint,
            forward_lines,
            cotangents,
            activity.outputs,
            sources,
            tuple(constant),
            frozenset(writer.recomputed),
            self.overwritten,
        )

    def traces(self, result: Joint | None) -> tuple[Trace, ...]:
        return () if result is None else (result.trace,)


@dataclass(frozen=True, slots=True)
class _Step:
    """One differentiated line, as it stands in the joint trace.

    Attributes:
        bound: the line of the program.
        query: what was asked about it.
        derivative: how it is differentiated; for an equal line.
        values: the values of the derivative in the joint trace, by their names in the derivative.
        storages: likewise for memories.
    """

    bound: BoundSymbol
    query: Query
    derivative: Derivative
    values: dict[str, Proxy]
    storages: dict[int, int]

    @property
    def outputs(self) -> dict[str, Proxy]:
        """The outputs of the line, by their names in the derivative."""
        models = [proxy.name for proxy in outputs_of(self.derivative.bound)]
        return dict(zip(models, outputs_of(self.bound), strict=True))


class _Writer:
    """Writes the joint trace.

    Attributes:
        cotangents: of each value, what has been summed up so far.
        recomputed: names of values made in checkpoint regions.
        sources: number of lines by who gave their derivative.
    """

    def __init__(
        self, trace: Trace, activity: Activity, executors: Sequence[Executor], recomputed: frozenset[str]
    ) -> None:
        self.trace = trace
        self.activity = activity
        self.executors = executors
        self.emitter = JointEmitter(trace)
        self.steps: list[_Step] = []
        self.cotangents: dict[str, TensorProxy] = {}
        self.recomputed = set(recomputed)
        self.sources: Counter[str] = Counter()

    # ---- forward ---------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        """The program, with what backward needs besides."""
        for bound in self.trace.symbols:
            reached = frozenset([p.name for p in outputs_of(bound) if p.name in self.activity.reached])
            wanted = frozenset([p.name for p in inputs_of(bound) if p.name in self.activity.active])
            if reached and wanted and records(bound, self.trace):
                self._differentiated(bound, wanted, reached)
            else:
                self.emitter.add(self._line(bound))

    def _differentiated(self, bound: BoundSymbol, wanted: frozenset[str], reached: frozenset[str]) -> None:
        complete = replace(bound, context=bound.context or self.trace.context)
        query = Query(complete, wanted, reached)
        derivative = derive(query, self.executors)
        self.sources[derivative.source] += 1
        values, storages = _correspondence(derivative.bound, bound)
        before = len(self.emitter.lines)
        stem = next(iter(outputs_of(bound))).name
        for line in derivative.forward:
            if line is derivative.bound:
                self.emitter.add(self._line(bound))
            else:
                values = self.emitter.instantiate([self._line(line, bound)], values, storages, stem)
        if any(name in self.recomputed for name in reached):
            for line in self.emitter.lines[before:]:
                self.recomputed.update(proxy.name for proxy in outputs_of(line))
        self.steps.append(_Step(bound, query, derivative, values, storages))

    def _line(self, line: BoundSymbol, user: BoundSymbol | None = None) -> BoundSymbol:
        """A line under its own modes but without recording of gradients; at the place of ``user`` if given."""
        location = line.location if user is None else user.location
        if line.context is None:
            return line if line.location is location else replace(line, location=location)
        context = _without_gradients(line.context)
        ambient = _without_gradients(self.trace.context)
        return replace(line, context=None if context == ambient else context, location=location)

    # ---- backward --------------------------------------------------------------------------------------------------

    def cotangent_inputs(self) -> tuple[TensorProxy, ...]:
        """The inputs of the joint trace that hold the gradients of outputs."""
        found = []
        for index in self.activity.outputs:
            output = self.trace.output[index]
            cotangent = replace(
                output,
                name=self.emitter.name(f"{output.name}_cotangent"),
                stride=dense_stride(output),
                storage=self.emitter.storage(),
                offset=0,
                requires_grad=False,
            )
            self.cotangents[output.name] = cotangent
            found.append(cotangent)
        return tuple(found)

    def backward(self) -> None:
        """The lines in reverse."""
        for step in reversed(self.steps):
            self._backward(step)

    def _backward(self, step: _Step) -> None:
        derivative = step.derivative
        absent = [name for name, own in step.outputs.items() if own.name not in self.cotangents]
        if not derivative.cotangents.keys() - absent:
            return
        if derivative.along is not None:
            step = replace(step, derivative=derivative.without(frozenset(absent) & derivative.cotangents.keys()))
        cotangents = {
            step.outputs[name].name: self.cotangents.get(step.outputs[name].name)
            or self._zeros(step.outputs[name], step.bound)
            for name in step.derivative.cotangents
        }
        step = self._fitting(step, cotangents)
        derivative, values, storages = step.derivative, dict(step.values), dict(step.storages)
        for name, stand_in in derivative.cotangents.items():
            cotangent = cotangents[step.outputs[name].name]
            values[stand_in.name] = cotangent
            storages[stand_in.storage] = cotangent.storage
        sources = dict(zip([p.name for p in inputs_of(derivative.bound)], inputs_of(step.bound), strict=True))
        names = {
            proxy.name: f"{sources[name].name}_cotangent"
            for name, proxy in derivative.gradients.items()
            if sources[name].name not in self.cotangents
        }
        stem = f"{outputs_of(step.bound)[0].name}_cotangent"
        lines = [self._line(line, step.bound) for line in derivative.backward]
        values = self.emitter.instantiate(lines, values, storages, stem, names)
        for name, proxy in derivative.gradients.items():
            gradient = values.get(proxy.name, proxy)
            assert isinstance(gradient, TensorProxy)
            self._accumulate(sources[name], gradient, step.bound)

    def _fitting(self, step: _Step, cotangents: dict[str, TensorProxy]) -> _Step:
        """The step with a derivative for cotangents of these strides, which may be expanded, say.

        The same step if forward, which is written already, would be another then.
        """
        derivative = step.derivative
        strides = {
            own.name: tuple(cotangents[own.name].stride)
            for name, own in step.outputs.items()
            if own.name in cotangents and cotangents[own.name].stride != derivative.cotangents[name].stride
        }
        if not strides or derivative.along is not None:
            return step
        other = derive(replace(step.query, cotangent_strides=strides), self.executors)
        if [line.symbol for line in other.forward] != [line.symbol for line in derivative.forward]:
            return step
        values, storages = _correspondence(other.bound, step.bound)
        for new, old in zip(other.forward, derivative.forward, strict=True):
            for made, known in zip(outputs_of(new), outputs_of(old), strict=True):
                values.setdefault(made.name, step.values[known.name])
                if isinstance(made, TensorProxy) and isinstance(known, TensorProxy):
                    storages.setdefault(made.storage, step.storages[known.storage])
        return _Step(step.bound, step.query, other, values, storages)

    def _accumulate(self, source: Proxy, gradient: TensorProxy, bound: BoundSymbol) -> None:
        known = self.cotangents.get(source.name)
        if known is None:
            self.cotangents[source.name] = gradient
            return
        name = self.emitter.name(f"{source.name}_cotangent", numbered=True)
        total = replace(known, name=name, storage=self.emitter.storage(), offset=0, stride=dense_stride(known))
        self._call(torch.add, (known, gradient), {}, total, bound)
        self.cotangents[source.name] = total

    def _zeros(self, proxy: Proxy, bound: BoundSymbol) -> TensorProxy:
        """A zero cotangent, for an output of several of which others have one."""
        assert isinstance(proxy, TensorProxy)
        name = self.emitter.name(f"{proxy.name}_cotangent", numbered=True)
        zeros = replace(
            proxy, name=name, storage=self.emitter.storage(), offset=0, stride=dense_stride(proxy), requires_grad=False
        )
        self._call(torch.zeros, (tuple(proxy.shape),), {"dtype": proxy.dtype, "device": proxy.device}, zeros, bound)
        return zeros

    def _call(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: TensorProxy, bound: BoundSymbol
    ) -> None:
        symbol, args, kwargs = registry.resolve(function, args, kwargs)
        self.emitter.add(self._line(BoundSymbol(symbol, args, kwargs, output, context=PLAIN), bound))


def _correspondence(model: BoundSymbol, bound: BoundSymbol) -> tuple[dict[str, Proxy], dict[int, int]]:
    """Values and storages of ``bound`` by those of an equal line."""
    values: dict[str, Proxy] = {}
    storages: dict[int, int] = {}
    for old, new in zip((*inputs_of(model), *outputs_of(model)), (*inputs_of(bound), *outputs_of(bound)), strict=True):
        values[old.name] = new
        if isinstance(old, TensorProxy) and isinstance(new, TensorProxy):
            storages[old.storage] = new.storage
    return values, storages


def _without_gradients(context: Context) -> Context:
    return replace(context, grad_enabled=False)

"""The lines of the joint trace: the program's own with what backward needs besides, then those of backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from thunder_core.autodiff.activity import Activity, records
from thunder_core.autodiff.checkpoint import Inlined
from thunder_core.autodiff.cotangents import Cotangents
from thunder_core.autodiff.derivative import Query
from thunder_core.autodiff.derive import derive
from thunder_core.autodiff.differentiated_line import DifferentiatedLine, correspondence
from thunder_core.autodiff.emitter import JointEmitter
from thunder_core.autodiff.joint import Origin
from thunder_core.executors.decision import Decision
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.moved_memories import Place


class JointWriter:
    """Writes the joint trace. Call `forward`, then `cotangent_inputs`, then `backward`.

    Args:
        trace: the program.
        activity: which of its values take part.
        executors: asked first for the derivatives of the lines they claim.
        regions: the checkpoint regions that the program had.

    Attributes:
        emitter: has the lines.
        cotangents: of the program's values.
        recomputed: values of those regions to make again, with what backward needs of the regions besides.
        origins: number of lines by where their derivative is from.
        offered: the lines that are differentiated, with what the executors answered.
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
        self._differentiated: list[DifferentiatedLine] = []

    def forward(self) -> None:
        """The program, with what backward needs besides."""
        for bound in self.trace.symbols:
            reached = frozenset([p.name for p in bound.outputs() if p.name in self.activity.reached])
            wanted = frozenset([p.name for p in bound.inputs() if p.name in self.activity.active])
            if reached and wanted and records(bound, self.trace):
                self._forward(bound, wanted, reached)
            else:
                self.emitter.add(self.emitter.line(bound))

    def cotangent_inputs(self) -> tuple[TensorProxy, ...]:
        """The inputs of the joint trace that hold the gradients of outputs."""
        outputs = [self.trace.output[index] for index in self.activity.outputs]
        return tuple([self.cotangents.given(output) for output in outputs])

    def backward(self) -> None:
        """The lines of backward, for those of the program in reverse."""
        for line in reversed(self._differentiated):
            absent = frozenset([name for name, own in line.outputs.items() if own.name not in self.cotangents.known])
            if line.derivative.cotangents.keys() - absent:
                self._backward(line, absent)

    def _forward(self, bound: BoundSymbol, wanted: frozenset[str], reached: frozenset[str]) -> None:
        query = Query(replace(bound, context=bound.context or self.trace.context), wanted, reached)
        derivative = derive(query, self.executors)
        self.origins[Origin(bound.symbol.name, derivative.source, derivative.reason)] += 1
        if derivative.answers:
            self.offered.append((bound, derivative.answers))
        values, storages = correspondence(derivative.bound, bound)
        before = len(self.emitter.lines)
        stem = next(iter(bound.outputs())).name
        for line in derivative.forward:
            if line is derivative.bound:
                self.emitter.add(self.emitter.line(bound))
            else:
                values = self.emitter.instantiate([self.emitter.line(line, bound)], values, storages, stem)
        if not reached.isdisjoint(self.regions.made):
            own = {proxy.name for proxy in bound.outputs()}
            for line in self.emitter.lines[before:]:
                self.recomputed.update(proxy.name for proxy in line.outputs() if proxy.name not in own)
        self._differentiated.append(DifferentiatedLine(bound, query, derivative, values, storages))

    def _backward(self, line: DifferentiatedLine, absent: frozenset[str]) -> None:
        if line.derivative.along is not None:
            line = line.without(absent & line.derivative.cotangents.keys())
        known, user, outputs = self.cotangents.known, line.bound, line.outputs
        given = {
            outputs[name].name: known.get(outputs[name].name) or self.cotangents.zeros(outputs[name], user)
            for name in line.derivative.cotangents
        }
        line = self._fitting(line, given)
        derivative, outputs, inputs = line.derivative, line.outputs, line.inputs
        values, storages = dict(line.values), dict(line.storages)
        for name, placeholder in derivative.cotangents.items():
            cotangent = given[outputs[name].name]
            values[placeholder.name] = cotangent
            storages[placeholder.storage] = Place.where(placeholder, cotangent)
        names = {
            proxy.name: f"{inputs[name].name}_cotangent"
            for name, proxy in derivative.gradients.items()
            if inputs[name].name not in known
        }
        stem = f"{user.outputs()[0].name}_cotangent"
        lines = [self.emitter.line(written, user) for written in derivative.backward]
        values = self.emitter.instantiate(lines, values, storages, stem, names)
        for name, proxy in derivative.gradients.items():
            gradient = values.get(proxy.name, proxy)
            assert isinstance(gradient, TensorProxy)
            self.cotangents.add(inputs[name], gradient, user)

    def _fitting(self, line: DifferentiatedLine, cotangents: dict[str, TensorProxy]) -> DifferentiatedLine:
        """The line with a derivative for the strides of these cotangents, which may be expanded, say.

        The same line if its forward, which is written already, would be another then.
        """
        strides = line.other_strides(cotangents)
        if not strides or line.derivative.along is not None:
            return line
        return line.with_derivative(derive(replace(line.query, cotangent_strides=strides), self.executors))

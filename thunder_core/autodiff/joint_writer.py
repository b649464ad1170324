"""The lines of the joint trace: the program's own with what backward needs besides, then those of backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_core.autodiff.activity import Activity, records
from thunder_core.autodiff.checkpoint import Inlined
from thunder_core.autodiff.derivative import PLAIN, Derivative, Query, stand_in, sum_stand_in
from thunder_core.autodiff.derive import derive
from thunder_core.autodiff.joint import Origin
from thunder_core.executors.decision import Decision
from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.builder import Builder
from thunder_core.ir.proxy import PROXY_TYPES, Proxy, TensorProxy
from thunder_core.ir.size import Size
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.passes.moved_memories import Place
from thunder_core.symbols.registry import registry


@dataclass(frozen=True, slots=True)
class DifferentiatedLine:
    """One line with its derivative.

    Attributes:
        bound: the line of the program.
        query: what was asked about it.
        derivative: how it is differentiated; for an equal line.
        values: the values of the derivative in the joint trace, by their names in the derivative.
        storages: where its memories lie there, by their numbers in the derivative.
    """

    bound: BoundSymbol
    query: Query
    derivative: Derivative
    values: dict[str, Proxy]
    storages: dict[int, Place]

    @property
    def outputs(self) -> dict[str, Proxy]:
        """The outputs of the line, by their names in the derivative."""
        models = [proxy.name for proxy in self.derivative.bound.outputs()]
        return dict(zip(models, self.bound.outputs(), strict=True))

    @property
    def inputs(self) -> dict[str, Proxy]:
        """Its inputs, likewise."""
        models = [proxy.name for proxy in self.derivative.bound.inputs()]
        return dict(zip(models, self.bound.inputs(), strict=True))

    def other_strides(self, cotangents: Mapping[str, TensorProxy]) -> dict[str, tuple[Size, ...]]:
        """Strides of cotangents, by output of the line, that differ from those that the derivative expects."""
        expected = self.derivative.cotangents
        return {
            own.name: cotangents[own.name].stride
            for name, own in self.outputs.items()
            if own.name in cotangents and cotangents[own.name].stride != expected[name].stride
        }

    def with_derivative(self, other: Derivative) -> DifferentiatedLine:
        """The line with another derivative whose forward, which is written already, has the same lines.

        The same line if the other forward has other ones.
        """
        if [line.symbol for line in other.forward] != [line.symbol for line in self.derivative.forward]:
            return self
        values, storages = correspondence(other.bound, self.bound)
        for new, old in zip(other.forward, self.derivative.forward, strict=True):
            for made, known in zip(new.outputs(), old.outputs(), strict=True):
                values.setdefault(made.name, self.values[known.name])
                if isinstance(made, TensorProxy) and isinstance(known, TensorProxy):
                    storages.setdefault(made.storage, self.storages[known.storage])
        return DifferentiatedLine(self.bound, self.query, other, values, storages)

    def without(self, absent: frozenset[str]) -> DifferentiatedLine:
        """The line where those outputs, as the derivative names them, have no cotangents. See `Derivative.without`."""
        return replace(self, derivative=self.derivative.without(absent))


def correspondence(model: BoundSymbol, bound: BoundSymbol) -> tuple[dict[str, Proxy], dict[int, Place]]:
    """Values of ``bound``, and places of its memories, by those of an equal line."""
    values: dict[str, Proxy] = {}
    storages: dict[int, Place] = {}
    for old, new in zip((*model.inputs(), *model.outputs()), (*bound.inputs(), *bound.outputs()), strict=True):
        values[old.name] = new
        if isinstance(old, TensorProxy) and isinstance(new, TensorProxy):
            storages[old.storage] = Place.where(old, new)
    return values, storages


class JointEmitter:
    """Collects lines, and instantiates those of derivatives.

    Attributes:
        lines: the lines so far.
        builder: gives names and storages that are new to the trace.
        context: modes of the joint trace: those of ``trace``, without recording of gradients.
    """

    def __init__(self, trace: Trace) -> None:
        self.lines: list[BoundSymbol] = []
        self.context = replace(trace.context, grad_enabled=False)
        self.builder = Builder.of(trace, bodies=False)

    def add(self, bound: BoundSymbol) -> None:
        """Append one line as it is."""
        self.lines.append(bound)

    def line(self, line: BoundSymbol, user: BoundSymbol | None = None) -> BoundSymbol:
        """A line under its own modes but without recording of gradients; at the place of ``user`` if given."""
        location = line.location if user is None else user.location
        context = None if line.context is None else replace(line.context, grad_enabled=False)
        return replace(line, context=None if context == self.context else context, location=location)

    def instantiate(
        self,
        lines: Iterable[BoundSymbol],
        known: Mapping[str, Proxy],
        storages: dict[int, Place],
        stem: str,
        names: Mapping[str, str] | None = None,
    ) -> dict[str, Proxy]:
        """Append lines of a derivative.

        Args:
            known: what stands for values that exist already, by their name in the derivative.
            storages: where memories of the derivative lie in the trace, by their numbers; new ones are added.
            stem: of the names of new values.
            names: names wanted for certain values.

        Returns:
            All values by their name in the derivative.
        """
        values = dict(known)

        def value(leaf: Any) -> Any:
            if not isinstance(leaf, PROXY_TYPES):
                return leaf
            found = values.get(leaf.name)
            if found is None:
                found = values[leaf.name] = self._new(leaf, storages, stem, names or {})
            return found

        for line in lines:
            effects = line.effects
            line = replace(line.map_arguments(value), output=map_leaves(value, line.output), effects=effects)
            self.lines.append(line)
        return values

    def _new(self, proxy: Proxy, storages: dict[int, Place], stem: str, names: Mapping[str, str]) -> Proxy:
        wanted = names.get(proxy.name)
        name = self.builder.name(stem, numbered=True) if wanted is None else self.builder.name(wanted)
        if not isinstance(proxy, TensorProxy):
            return replace(proxy, name=name)
        if proxy.storage not in storages:
            storages[proxy.storage] = Place(self.builder.new_storage())
        return replace(storages[proxy.storage].moved(proxy), name=name)


class Cotangents:
    """What each value of a program has as its cotangent so far, while the lines of backward are written.

    Args:
        emitter: takes the lines.

    Attributes:
        known: by name of the value.
    """

    def __init__(self, emitter: JointEmitter) -> None:
        self.emitter = emitter
        self.known: dict[str, TensorProxy] = {}

    def given(self, output: TensorProxy) -> TensorProxy:
        """A new input of the joint trace: the cotangent of an output of the program."""
        self.known[output.name] = self._new(output, self.emitter.builder.name(f"{output.name}_cotangent"))
        return self.known[output.name]

    def add(self, value: Proxy, gradient: TensorProxy, user: BoundSymbol) -> None:
        """Another part of the cotangent of ``value``, which a line for ``user`` gave."""
        known = self.known.get(value.name)
        if known is not None:
            name = self.emitter.builder.name(f"{value.name}_cotangent", numbered=True)
            total = sum_stand_in(known, gradient, name, self.emitter.builder.new_storage())
            self._call(torch.add, (known, gradient), {}, total, user)
            gradient = total
        self.known[value.name] = gradient

    def zeros(self, value: Proxy, user: BoundSymbol) -> TensorProxy:
        """A zero cotangent, for an output of several of which others have one."""
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
        self.emitter.add(self.emitter.line(BoundSymbol(symbol, args, kwargs, output, context=PLAIN), user))


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

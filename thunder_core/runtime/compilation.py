"""A program between two steps of its pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from thunder_core.acquire.acquire import Acquired
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.config.settings import Settings
from thunder_core.executors.executor import Executor
from thunder_core.executors.states import States
from thunder_core.guards.source import ArgumentSource, KeywordSource
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult
from thunder_core.passes.base import PassContext, Phase, Place
from thunder_core.passes.explicit_autocast import leaves_among
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.transform import Transform


def static_inputs(acquired: Acquired) -> frozenset[str]:
    """Names of the inputs that are not reached from the arguments of the call."""
    inputs = zip(acquired.trace.inputs, acquired.sources, strict=True)
    arguments = ArgumentSource | KeywordSource
    return frozenset([proxy.name for proxy, source in inputs if not isinstance(source.root, arguments)])


def computed_for_backward(partitioned: Partitioned) -> frozenset[str]:
    """Names of the saved values that share no memory with an input of the program."""
    inputs = partitioned.forward.inputs
    names = {proxy.name for proxy in inputs}
    memories = {proxy.storage for proxy in inputs if isinstance(proxy, TensorProxy)}
    return frozenset(
        proxy.name
        for proxy in partitioned.saved
        if proxy.name not in names and not (isinstance(proxy, TensorProxy) and proxy.storage in memories)
    )


Made = TypeVar("Made", Functionalized, Joint, Partitioned, AssignmentResult)
AnyResult = Trace | Functionalized | Joint | Partitioned | AssignmentResult | None


@dataclass(frozen=True)
class Compilation:
    """What the steps so far made of a program, and what the next ones may know. It holds no input of the call.

    Attributes:
        traces: the program as it is now; forward and backward are two.
        results: the latest result of each kind that is more than a trace, by its class.
        executors: asked for the lines, in order of preference.
        transforms: of the configuration, in the order in which those of one place run.
        states: of the lines that need one.
        policy: what backward computes again, as `thunder_core.autodiff.partition.Partition` takes it.
        leaves, families: of the inputs, as `thunder_core.passes.functionalize.Functionalize` takes them.
        cast_once: inputs whose conversions autocast caches: the leaves of `ExplicitAutocast`.
        static, saved, unverified_strides: as in `PassContext`.
        constants: values of the inputs that transforms added, by name.
        unclaimed: as in `PassContext`, from all transforms so far.
        notes: what transforms say for the report; the one thing here that grows.
    """

    traces: Mapping[Phase, Trace]
    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...]
    states: States
    policy: str | dict[str, float]
    leaves: frozenset[str]
    families: tuple[frozenset[str], ...]
    cast_once: frozenset[str]
    static: frozenset[str]
    saved: frozenset[str] = frozenset()
    unverified_strides: frozenset[str] = frozenset()
    results: Mapping[type, AnyResult] = field(default_factory=dict)
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    unclaimed: tuple[Assignment, ...] = ()
    notes: list[object] = field(default_factory=list)

    @classmethod
    def of(cls, acquired: Acquired, settings: Settings, states: States) -> Compilation:
        """The compilation of an acquired program, before the first step."""
        return cls(
            {Phase.INFERENCE: acquired.trace},
            settings.executors,
            settings.transforms,
            states,
            settings.policy,
            acquired.leaves,
            acquired.families,
            leaves_among(acquired.trace.inputs, acquired.inputs),
            static_inputs(acquired),
        )

    @property
    def trace(self) -> Trace:
        """The program before it is differentiated, or that of inference."""
        return self.traces[Phase.INFERENCE]

    def result(self, kind: type[Made]) -> Made:
        """The latest result of a kind; KeyError if no step has made one."""
        made = self.results[kind]
        assert isinstance(made, kind)
        return made

    def context(self, phase: Phase, place: Place | None) -> PassContext:
        """What a pass may know that runs now."""
        functional = self.results.get(Functionalized)
        return PassContext(
            phase,
            functional.donated if isinstance(functional, Functionalized) else frozenset(),
            dict(self.constants),
            place,
            self.executors,
            self.static,
            self.saved,
            self.notes,
            unverified_strides=self.unverified_strides if phase is Phase.BACKWARD else frozenset(),
        )

    def with_additions(self, context: PassContext) -> Compilation:
        """After passes that ran in that context: with the constants and unclaimed calls that they added to it."""
        if len(context.constants) == len(self.constants) and not context.unclaimed:
            return self
        static = self.static.union(context.constants)
        unclaimed = (*self.unclaimed, *context.unclaimed)
        return replace(self, constants=context.constants, static=static, unclaimed=unclaimed)

    def after(self, phase: Phase, result: AnyResult) -> Compilation:
        """After a pass that ran on the program of that phase."""
        match result:
            case None:
                return self
            case Trace():
                return replace(self, traces={**self.traces, phase: result})
            case Functionalized():
                made = {phase: result.computation}
            case Joint():
                made = {Phase.JOINT: result.trace}
            case Partitioned():
                made = {Phase.FORWARD: result.forward, Phase.BACKWARD: result.backward}
            case AssignmentResult():
                both = zip((phase, Phase.BACKWARD), (result, *result.others), strict=False)
                made = {on: one.trace for on, one in both}
        after = replace(self, traces={**self.traces, **made}, results={**self.results, type(result): result})
        if isinstance(result, Partitioned):
            return replace(after, saved=computed_for_backward(result))
        if isinstance(result, AssignmentResult) and phase is Phase.FORWARD:
            return replace(after, unverified_strides=_unverified_strides(result.trace, self.context(phase, None)))
        return after

    def without_programs(self) -> Compilation:
        """What programs that are made later share with those of the compilation."""
        return replace(self, traces={}, results={}, constants={})


def _unverified_strides(forward: Trace, context: PassContext) -> frozenset[str]:
    """Names of values that forward computes and whose strides may be others than the trace says."""
    verified = {proxy.name for line in forward.symbols for proxy in context.verified_strides(line)}
    return frozenset([proxy.name for line in forward.symbols for proxy in line.outputs() if proxy.name not in verified])

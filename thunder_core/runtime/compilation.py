"""The state of a compilation between two steps of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch

from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.checks.source import ArgumentSource, KeywordSource
from thunder_core.contract import Recording
from thunder_core.executors.executor import Executor
from thunder_core.executors.states import States
from thunder_core.ir.proxy import TensorProxy, storages_of
from thunder_core.ir.trace import Trace
from thunder_core.passes.assignment import Assignment, AssignmentResult
from thunder_core.passes.base import PassContext, Phase, Place
from thunder_core.passes.explicit_autocast import leaves_among
from thunder_core.passes.functionalize import Functionalized
from thunder_core.passes.transform import Transform
from thunder_core.settings import Settings


def _persistent_inputs(recording: Recording) -> frozenset[str]:
    """Names of the inputs that the program did not reach from the arguments of the call."""
    inputs = zip(recording.trace.inputs, recording.sources, strict=True)
    arguments = ArgumentSource | KeywordSource
    return frozenset([proxy.name for proxy, source in inputs if not isinstance(source.root, arguments)])


def _computed_for_backward(partitioned: Partitioned) -> frozenset[str]:
    """Names of the saved values that share no storage with an input of the program."""
    inputs = partitioned.forward.inputs
    names = {proxy.name for proxy in inputs}
    storages = storages_of(inputs)
    return frozenset(
        proxy.name
        for proxy in partitioned.saved
        if proxy.name not in names and not (isinstance(proxy, TensorProxy) and proxy.storage in storages)
    )


ResultKind = TypeVar("ResultKind", Functionalized, Joint, Partitioned, AssignmentResult)
AnyResult = Trace | Functionalized | Joint | Partitioned | AssignmentResult | None


@dataclass(frozen=True)
class Compilation:
    """The traces and other results of the steps so far, and the inputs of the next ones. It holds no input of the call.

    Attributes:
        traces: the current trace of each phase.
        executors: the executors, in order.
        transforms: the transforms, in the order in which those of one place run.
        states: the states of ops of executors.
        policy: the policy of recomputation, for `thunder_core.autodiff.partitioning.partition.Partition`.
        leaves, families: properties of the inputs, for `thunder_core.passes.functionalize.Functionalize`.
        cast_once: inputs whose casts autocast caches, for `ExplicitAutocast`.
        persistent, saved, unverified_strides: as in `PassContext`.
        results: the latest result of each class that is more than a trace.
        constants: values of the inputs that transforms added, by name.
        unclaimed: as in `PassContext`, from all transforms so far.
        notes: notes of transforms for the report; this list is mutable and shared.
        gradients: as in `thunder_core.contract.Recording`.
        memory: the budget of memory in bytes; None without one.
    """

    traces: Mapping[Phase, Trace]
    executors: tuple[Executor, ...]
    transforms: tuple[Transform, ...]
    states: States
    policy: str | dict[str, float]
    leaves: frozenset[str]
    families: tuple[frozenset[str], ...]
    cast_once: frozenset[str]
    persistent: frozenset[str]
    saved: frozenset[str] = frozenset()
    unverified_strides: frozenset[str] = frozenset()
    results: Mapping[type, AnyResult] = field(default_factory=dict)
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    unclaimed: tuple[Assignment, ...] = ()
    notes: list[object] = field(default_factory=list)
    gradients: Mapping[str, str | None] = field(default_factory=dict)
    memory: int | None = None

    @classmethod
    def of(cls, recording: Recording, settings: Settings, states: States) -> Compilation:
        """The compilation of a recorded program, before the first step."""
        return cls(
            {Phase.INFERENCE: recording.trace},
            settings.executors,
            settings.transforms,
            states,
            settings.recompute if isinstance(settings.recompute, str) else {"budget": settings.recompute},
            recording.leaves,
            recording.families,
            leaves_among(recording.trace.inputs, recording.inputs),
            _persistent_inputs(recording),
            gradients=recording.gradients,
            memory=settings.memory,
        )

    @property
    def trace(self) -> Trace:
        """The program before it is differentiated, or that of inference."""
        return self.traces[Phase.INFERENCE]

    def result(self, kind: type[ResultKind]) -> ResultKind:
        """The latest result of a class. Raises KeyError if there is none."""
        result = self.results[kind]
        assert isinstance(result, kind)
        return result

    def context(self, phase: Phase, place: Place | None) -> PassContext:
        """The context of a pass that runs next."""
        functional = self.results.get(Functionalized)
        return PassContext(
            phase,
            functional.donated if isinstance(functional, Functionalized) else frozenset(),
            dict(self.constants),
            place,
            self.executors,
            self.persistent,
            self.saved,
            self.notes,
            unverified_strides=self.unverified_strides if phase is Phase.BACKWARD else frozenset(),
            gradients=self.gradients,
            recompute=self.policy,
        )

    def with_additions(self, context: PassContext) -> Compilation:
        """The compilation with the constants and unclaimed composites that passes added to their context."""
        if len(context.constants) == len(self.constants) and not context.unclaimed:
            return self
        persistent = self.persistent.union(context.constants)
        unclaimed = (*self.unclaimed, *context.unclaimed)
        return replace(self, constants=context.constants, persistent=persistent, unclaimed=unclaimed)

    def after(self, phase: Phase, result: AnyResult) -> Compilation:
        """The compilation after a pass on the trace of that phase returned ``result``."""
        match result:
            case None:
                return self
            case Trace():
                return replace(self, traces={**self.traces, phase: result})
            case Functionalized():
                traces = {phase: result.computation}
            case Joint():
                traces = {Phase.JOINT: result.trace}
            case Partitioned():
                traces = {Phase.FORWARD: result.forward, Phase.BACKWARD: result.backward}
            case AssignmentResult():
                both = zip((phase, Phase.BACKWARD), (result, *result.others), strict=False)
                traces = {on: one.trace for on, one in both}
        after = replace(self, traces={**self.traces, **traces}, results={**self.results, type(result): result})
        if isinstance(result, Partitioned):
            return replace(after, saved=_computed_for_backward(result))
        if isinstance(result, AssignmentResult) and phase is Phase.FORWARD:
            return replace(after, unverified_strides=_unverified_strides(result.trace, self.context(phase, None)))
        return after

    def without_programs(self) -> Compilation:
        """The compilation without its results, for programs that are compiled later."""
        return replace(self, traces={}, results={}, constants={})


def _unverified_strides(forward: Trace, context: PassContext) -> frozenset[str]:
    """Names of values that forward computes and whose strides may differ from the trace."""
    verified = {proxy.name for bound in forward.symbols for proxy in context.verified_strides(bound)}
    return frozenset(
        [proxy.name for bound in forward.symbols for proxy in bound.outputs() if proxy.name not in verified]
    )

"""The transforms of a configuration, each at its place."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from thunder_core.executors.executor import Executor
from thunder_core.ir.trace import Trace
from thunder_core.passes.delete_last_use import DeleteLastUse
from thunder_core.passes.pass_manager import PassManager
from thunder_core.passes.transform import Phase, Place, Transform, TransformContext
from thunder_core.passes.transform_pass import TransformPass


@dataclass(frozen=True)
class ConfiguredTransforms:
    """Runs those of a place.

    Attributes:
        manager: runs passes.
        transforms: in their order.
        executors: in order of preference.
        notes: what they say for the report.
    """

    manager: PassManager
    transforms: tuple[Transform, ...]
    executors: tuple[Executor, ...] = ()
    notes: list[object] = field(default_factory=list)

    def run(
        self,
        place: Place,
        trace: Trace,
        phase: Phase = Phase.INFERENCE,
        keep: frozenset[str] = frozenset(),
        constants: dict[str, torch.Tensor] | None = None,
        static: frozenset[str] = frozenset(),
        saved: frozenset[str] = frozenset(),
    ) -> Trace:
        """The trace as they leave it; see `TransformContext` for what they are told."""
        constants = {} if constants is None else constants
        context = TransformContext(phase, keep, constants, place, self.executors, static, saved, self.notes)
        for single in self.transforms:
            if (place is single.place or place in single.also) and single.applies(context):
                trace = self.manager.run(TransformPass(single, context), trace)
        return trace

    def finish(self, trace: Trace, phase: Phase, static: frozenset[str], saved: frozenset[str] = frozenset()) -> Trace:
        """From a trace with the executors' lines in place to what runs."""
        for place in (Place.CLAIMED, Place.LAST):
            trace = self.run(place, trace, phase, static=static, saved=saved)
        return self.manager.run(DeleteLastUse(), trace)

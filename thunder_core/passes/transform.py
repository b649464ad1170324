"""Transforms: passes that a configuration adds to the pipeline, each at its place."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from thunder_core.executors.executor import Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace


class Place(enum.Enum):
    """Where in the pipeline a transform runs."""

    ACQUIRED = "acquired"
    """On the program as the user wrote it; in-place operations are allowed."""
    BEFORE_DIFFERENTIATION = "before differentiation"
    """On the functional program, with autocast's conversions in it, before gradients are."""
    AFTER_DIFFERENTIATION = "after differentiation"
    """On the joint trace of forward and backward; in inference on the program."""
    PARTITIONED = "partitioned"
    """On forward, and on backward, before executors are asked for their lines; in inference on the program."""
    CLAIMED = "claimed"
    """On forward, and on backward, with the executors' lines in place."""
    LAST = "last"
    """On the same, after everything else: what the transform leaves is what runs."""


class Phase(enum.Enum):
    """Which program a transform is given."""

    INFERENCE = "inference"
    JOINT = "joint"
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class TransformContext:
    """What a transform may know besides the trace, and what it may add.

    Attributes:
        phase: which program it is. ``INFERENCE`` also stands for programs that will be differentiated, at the places
            before that.
        keep: names whose memory the program may write later: they must be neither merged nor folded.
        constants: values of inputs that the transform appends to ``trace.inputs``, by name. The program reads them,
            never writes nor returns them. Places before differentiation only.
        place: where the transform runs this time; None outside of the pipeline.
        executors: that will be asked for the lines, in order of preference.
        static: names of inputs that are not reached from the arguments of the call: parameters, buffers, constants.
            They are the same tensors from call to call, unless somebody replaces them. In training, places after the
            executors only.
        saved: names of the values that forward computes for backward: outputs of the one, inputs of the other. Those
            that share memory with an input of the program are not among them. Places after the executors only.
        notes: what the report of the compilation says besides; transforms append objects, and ``str`` of each is taken
            whenever somebody asks for the report.
    """

    phase: Phase
    keep: frozenset[str] = frozenset()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    place: Place | None = None
    executors: Sequence[Executor] = ()
    static: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    notes: list[object] = field(default_factory=list)

    def fuses(self) -> bool:
        """Whether one of the executors makes kernels of several lines."""
        return any(executor.fusion is not None for executor in self.executors)


class Transform:
    """Base of all transforms. One is a frozen dataclass; its fields are its options.

    Attributes:
        name: in configurations and reports.
        place: where it runs.
        also: further places where it runs. ``TransformContext.place`` says which one it is.
        requires: names of transforms without which it makes no sense.
        conflicts: names of transforms that must not be there as well.
        before, after: names of transforms of the same place that it must precede or follow, where they are there.
    """

    name: ClassVar[str]
    place: ClassVar[Place]
    also: ClassVar[tuple[Place, ...]] = ()
    requires: ClassVar[tuple[str, ...]] = ()
    conflicts: ClassVar[tuple[str, ...]] = ()
    before: ClassVar[tuple[str, ...]] = ()
    after: ClassVar[tuple[str, ...]] = ()

    def applies(self, context: TransformContext) -> bool:
        """Whether it runs at all; where it does not, reports do not show it."""
        return True

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The trace that takes the place of ``trace``, with the same inputs and output; ``trace`` stays as it is."""
        return trace

    def unmatched(self, lines: Sequence[BoundSymbol]) -> list[str]:
        """For the report: a sentence about each pattern among its options that matches nothing in the program.

        Args:
            lines: of forward and backward, as they run.
        """
        return []

    def on_module(self, module: torch.nn.Module) -> None:
        """Called once with a module that is compiled, before its first call; may change parameters and submodules."""

    def on_state_dict(self, state: dict[str, Any]) -> dict[str, Any]:
        """What the compiled module's ``state_dict()`` returns, from what the module's own does."""
        return state

    def on_load_state_dict(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What the module's own ``load_state_dict`` is given, from what the compiled module's was."""
        return state

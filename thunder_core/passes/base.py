"""What a pass is, where it runs, and what it may know besides the trace."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Generic, TypeVar

import torch

from thunder_core.executors.executor import Executor, fusing
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes.assignment import Assignment

Result = TypeVar("Result")

_PRODUCTS: Final = frozenset({Tag.PRODUCT, Tag.LINEAR, Tag.ACCUMULATION})


class Place(enum.Enum):
    """Where in the pipeline a transform runs."""

    ACQUIRED = "acquired"
    """On the program as the user wrote it; in-place operations are allowed."""
    BEFORE_CLAIMS = "before claims"
    """On the functional program, with autocast's casts in it, before executors are offered any of its lines."""
    BEFORE_DIFFERENTIATION = "before differentiation"
    """On the functional program, with autocast's conversions in it, before gradients are."""
    AFTER_DIFFERENTIATION = "after differentiation"
    """On the joint trace of forward and backward; in inference on the program."""
    PARTITIONED = "partitioned"
    """On forward, and on backward, before executors claim lines; in inference on the program."""
    CLAIMED = "claimed"
    """On forward, and on backward, with the executors' lines in place."""
    LAST = "last"
    """On the same, after everything else: what the transform leaves is what runs."""


class Phase(enum.Enum):
    """Which program a pass is given."""

    INFERENCE = "inference"
    JOINT = "joint"
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class PassContext:
    """What a pass may know besides the trace, and what a transform may add.

    Attributes:
        phase: which program it is. ``INFERENCE`` also stands for programs that will be differentiated, at the places
            before that.
        keep: names whose memory the program may write later: they must be neither merged nor folded.
        constants: values of inputs that the transform appends to ``trace.inputs``, by name. The program reads them,
            never writes nor returns them. `Place.BEFORE_DIFFERENTIATION` only.
        place: where a transform runs this time; None for a pass that is a step of the pipeline.
        executors: that are offered the lines, in order of preference; empty for a program that runs as it was
            recorded.
        static: names of inputs that are not reached from the arguments of the call: parameters, buffers, constants.
            They are the same tensors from call to call, unless somebody replaces them.
        saved: names of the values that forward computes for backward: outputs of the one, inputs of the other. Those
            that share memory with an input of the program are not among them. From the partition on.
        notes: what the report of the compilation says besides; transforms append objects, and ``str`` of each is taken
            whenever the report is read.
        unclaimed: calls that a transform would put in place of several lines and that no executor claims, with the
            decisions; transforms append to it. The report shows them, and the lines stay.
        unverified_strides: names of inputs of a backward that may have other strides than the trace says: forward
            computes them, and nothing compares their strides. With the executors' lines in place.
    """

    phase: Phase = Phase.INFERENCE
    keep: frozenset[str] = frozenset()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    place: Place | None = None
    executors: Sequence[Executor] = ()
    static: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    notes: list[object] = field(default_factory=list)
    unclaimed: list[Assignment] = field(default_factory=list)
    unverified_strides: frozenset[str] = frozenset()

    def fuses(self) -> bool:
        """Whether one of the executors makes kernels of several lines."""
        return bool(fusing(self.executors))

    def verified_strides(self, line: BoundSymbol) -> list[TensorProxy]:
        """The results of a line with an executor that have the strides that the trace says.

        Those of a region are compared with the trace at run time; products of matrices are known to be contiguous
        where the trace says so. Other kernels may return other strides.
        """
        compared = line.symbol.executor in fusing(self.executors)
        if not compared and line.symbol.tags.isdisjoint(_PRODUCTS):
            return []
        return [p for p in line.outputs() if isinstance(p, TensorProxy) and (compared or p.contiguous)]


class Pass(Generic[Result]):
    """Base of all passes. A pass is a frozen dataclass; its fields are its options.

    The manager of a pipeline runs passes; nothing else does. Code that needs the work of a pass on another trace
    calls the function that the pass consists of, such as `thunder_core.passes.dead_code.without_dead_code`.

    Attributes:
        name: in records and provenances.
        consumes: the stages that it accepts.
        produces: the stage of its result; None when that is the stage it was given.
    """

    name: ClassVar[str]
    consumes: ClassVar[frozenset[Stage]] = frozenset(Stage)
    produces: ClassVar[Stage | None] = None

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do when its trace is malformed."""
        return ("this is a bug of Thunder: please report it, with this message",)

    def title(self, context: PassContext) -> str:
        """What messages call this run of it."""
        return f"the pass {self.name!r}"

    def run(self, trace: Trace, context: PassContext) -> Result:
        """The result for ``trace``, which stays as it is."""
        raise NotImplementedError

    def checked_run(self, trace: Trace, context: PassContext) -> Result:
        """`run`, and what must hold of its result whatever the trace: this is what the manager calls."""
        return self.run(trace, context)

    def traces(self, result: Result) -> tuple[Trace, ...]:
        """The traces in a result, the program's first, for verification and reports."""
        assert isinstance(result, Trace)
        return (result,)

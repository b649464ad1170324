"""The base class of passes, their places in the pipeline, and their context."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
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
    """A position in the pipeline at which transforms run."""

    ACQUIRED = "acquired"
    """On the program as the user wrote it; in-place operations are allowed."""
    BEFORE_CLAIMS = "before claims"
    """On the functional program with explicit autocast casts, before its ops are offered to executors."""
    BEFORE_DIFFERENTIATION = "before differentiation"
    """On the functional program with explicit autocast casts, before differentiation."""
    AFTER_DIFFERENTIATION = "after differentiation"
    """On the joint trace of forward and backward; for inference, on the program."""
    PARTITIONED = "partitioned"
    """On forward and on backward, before executors claim ops; for inference, on the program."""
    CLAIMED = "claimed"
    """On forward and on backward, after executors claimed their ops."""
    LAST = "last"
    """On the same traces, after all other passes: the resulting trace runs as it is."""


class Phase(enum.Enum):
    """The program that a pass runs on."""

    INFERENCE = "inference"
    JOINT = "joint"
    FORWARD = "forward"
    BACKWARD = "backward"


@dataclass(frozen=True)
class PassContext:
    """Information for a pass besides the trace, and outputs of a transform besides its trace.

    Attributes:
        phase: the program that the pass runs on. Before differentiation it is ``INFERENCE`` for all programs.
        protected: names of values whose storage the program may write later: they must be neither merged nor folded.
        constants: values of inputs that the transform appends to ``trace.inputs``, by name. The program must only read
            them, neither write nor return them. `Place.BEFORE_DIFFERENTIATION` only.
        place: the current place of a transform; None for a pass that is a step of the pipeline.
        executors: the executors that are offered the ops, in order of preference; empty for a program that runs as
            recorded.
        persistent: names of inputs that are not reached from the arguments of the call: parameters, buffers, constants.
            They are the same tensors in each call, unless the user replaces them.
        saved: names of the residuals: values that forward computes and backward takes as inputs, without those that
            share storage with an input of the program. Set after the partition.
        notes: further lines of the compilation's report; transforms append objects, whose ``str`` is taken each time
            the report is read.
        unclaimed: composites that a transform would put in place of several ops but that no executor claims, with the
            decisions; transforms append to it. The report shows them, and the ops stay.
        unverified_strides: names of inputs of a backward whose strides may differ from the trace: forward computes
            them, and no check compares their strides. Set after executors claimed their ops.
        gradients: as in `thunder_core.contract.Recording`.
        recompute: the policy of recomputation, as `thunder_core.autodiff.partitioning.partition.Partition` takes it.
    """

    phase: Phase = Phase.INFERENCE
    protected: frozenset[str] = frozenset()
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    place: Place | None = None
    executors: Sequence[Executor] = ()
    persistent: frozenset[str] = frozenset()
    saved: frozenset[str] = frozenset()
    notes: list[object] = field(default_factory=list)
    unclaimed: list[Assignment] = field(default_factory=list)
    unverified_strides: frozenset[str] = frozenset()
    gradients: Mapping[str, str | None] = field(default_factory=dict)
    recompute: str | Mapping[str, float] = "none"

    def fuses(self) -> bool:
        """Whether one of the executors fuses ops to regions."""
        return bool(fusing(self.executors))

    def verified_strides(self, op: BoundSymbol) -> list[TensorProxy]:
        """The results of a claimed op whose strides are certain to be those in the trace.

        Strides of a region's results are compared with the trace at run time; matrix products are contiguous if they
        are in the trace. Other kernels may return other strides.
        """
        compared = op.symbol.executor in fusing(self.executors)
        if not compared and op.symbol.tags.isdisjoint(_PRODUCTS):
            return []
        return [p for p in op.outputs() if isinstance(p, TensorProxy) and (compared or p.contiguous)]


class Pass(Generic[Result]):
    """Base class of all passes. A pass is a frozen dataclass; its fields are its options.

    Only `PassManager` runs passes. Code that needs the same transformation of another trace calls the function that the
    pass is based on, such as `thunder_core.passes.dead_code.without_dead_code`.

    Attributes:
        name: its name in records and provenances.
        consumes: the stages of traces that it accepts.
        produces: the stage of its result; None if that is the stage of its argument.
    """

    name: ClassVar[str]
    consumes: ClassVar[frozenset[Stage]] = frozenset(Stage)
    produces: ClassVar[Stage | None] = None

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice for the error message if its result is malformed."""
        return ("this is a bug of Thunder: please report it, with this message",)

    def title(self, context: PassContext) -> str:
        """The name of this run of the pass in messages."""
        return f"the pass {self.name!r}"

    def run(self, trace: Trace, context: PassContext) -> Result:
        """Return the result for ``trace``, which is not changed."""
        raise NotImplementedError

    def checked_run(self, trace: Trace, context: PassContext) -> Result:
        """`run` with checks of its result; the manager calls it."""
        return self.run(trace, context)

    def traces(self, result: Result) -> tuple[Trace, ...]:
        """The traces in a result, the program first, for verification and reports."""
        assert isinstance(result, Trace)
        return (result,)

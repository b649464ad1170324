"""The joint trace: forward and backward as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of the derivative of an op, for reports.

    Attributes:
        symbol: the symbol that the op calls.
        source: the origin of the formula: an executor's name, for example.
        reason: why the sources tried before failed; empty if they have no formula.
    """

    symbol: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Joint:
    """Forward and backward of a program as one functional trace.

    Attributes:
        trace: inputs are the program's inputs followed by ``cotangents``; its output is the pair
            ``(outputs, gradients)``: the results of the program, and one gradient for each item of ``differentiable``,
            None where none flows.
        backward_start: the position of the first op of backward. The ops before it are those of the program, in its
            order; those with effects run in the forward trace, and the partition decides where pure ones run.
        cotangents: inputs that hold the gradients of outputs; no forward value depends on them.
        cotangent_of: for each cotangent, the position of its value in ``outputs``.
        differentiable: inputs of the program that gradients are computed for.
        constant: positions of outputs that do not require grad.
        recomputed: names of values of checkpoint regions, which backward recomputes where possible instead of saving.
        overwritten: names of inputs that the epilogue writes after the forward trace, so that only a copy of them can
            be saved.
        returned: positions of outputs that are returned to the caller of the program, which keeps them alive.
        origins: number of ops of the program by the origin of their derivative.
        offered: the ops that were differentiated, with the decisions of the executors; empty without executors.
        repeated: names of those of ``recomputed`` that are results of `Tag.REPEATED` ops, which backward calls again
            despite their effects, and of values that only rearrange or cast these.
        rules: the hand-written rules of the symbols that were differentiated, by the names of rules; None for those
            without.
        formulas: positions of ops that compute a result of the random op before them, while a partition is chosen
            (`thunder_core.autodiff.partitioning.formulas`).
    """

    trace: Trace
    backward_start: int
    cotangents: tuple[TensorProxy, ...]
    cotangent_of: tuple[int, ...]
    differentiable: tuple[TensorProxy, ...]
    constant: tuple[int, ...] = ()
    recomputed: frozenset[str] = frozenset()
    overwritten: frozenset[str] = frozenset()
    returned: frozenset[int] = frozenset()
    origins: Mapping[Origin, int] = field(default_factory=dict)
    offered: tuple[tuple[BoundSymbol, tuple[Decision, ...]], ...] = ()
    repeated: frozenset[str] = frozenset()
    rules: Mapping[str, Callable[..., Any] | None] = field(default_factory=dict)
    formulas: frozenset[int] = frozenset()

    def with_trace(self, trace: Trace) -> Joint:
        """The joint trace with its trace replaced by one from which a pass removed ops."""
        before = self.trace.symbols[: self.backward_start]
        names = {proxy.name for bound in before for proxy in bound.outputs()}
        silent = sum(1 for bound in before if not any(True for _ in bound.outputs()))  # they have effects, and stay
        count = 0
        for index, bound in enumerate(trace.symbols):
            outputs = list(bound.outputs())
            if not outputs:
                silent -= 1
            if outputs[0].name in names if outputs else silent >= 0:
                count = index + 1
        return replace(self, trace=trace, backward_start=count)

    @property
    def primals(self) -> tuple[Proxy, ...]:
        """The inputs of the program, without the cotangents."""
        return self.trace.inputs[: len(self.trace.inputs) - len(self.cotangents)]

    @property
    def outputs(self) -> tuple[Proxy, ...]:
        """The results of the program."""
        outputs: tuple[Any, ...] = self.trace.output[0]
        return outputs

    @property
    def gradients(self) -> tuple[TensorProxy | None, ...]:
        """One gradient for each item of ``differentiable``; None where none flows."""
        gradients: tuple[Any, ...] = self.trace.output[1]
        return gradients


@dataclass(frozen=True, slots=True)
class MemoryChoice:
    """A partition that was chosen for a budget of memory, in bytes.

    Attributes:
        peak: the largest amount of memory of forward and backward, with inputs, before executors claim ops.
        usual: that of the partition without a budget.
        added: the time that recomputation adds to this partition, as a share of its estimated time.
    """

    peak: int
    usual: int
    added: float


@dataclass(frozen=True, slots=True)
class Partitioned:
    """The forward and backward traces that a joint trace was split into.

    Attributes:
        forward: from the program's inputs to ``(*outputs, *saved)``, a flat tuple.
        backward: from ``(*saved, *cotangents)`` to the gradients, a flat tuple with None where there is none. Inputs of
            the program that backward needs are among ``saved``.
        saved: values that backward takes from forward: inputs of the program, and values that forward computes.
        outputs: number of outputs of the program.
        bytes_saved: bytes of the storages that are kept alive for backward only: without those of inputs and of values
            returned to the caller; a storage that several values share counts once.
        recomputed: names of values that backward computes again.
        memory: how it was chosen for a budget of memory; None without one.
        offloaded: bytes that wait for backward in the memory of the host.
    """

    forward: Trace
    backward: Trace
    saved: tuple[Proxy, ...]
    outputs: int
    bytes_saved: int
    recomputed: tuple[str, ...]
    memory: MemoryChoice | None = None
    offloaded: int = 0

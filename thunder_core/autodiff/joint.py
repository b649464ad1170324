"""The joint trace: forward and backward as one program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thunder_core.executors.decision import Decision
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.proxy import Proxy, TensorProxy
from thunder_core.ir.trace import Trace


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the derivative of a line is from, for people.

    Attributes:
        symbol: what the line calls.
        source: who gave the formula.
        reason: why those who were asked before failed; empty if they just have no formula.
    """

    symbol: str
    source: str
    reason: str


@dataclass(frozen=True, slots=True)
class Joint:
    """Forward and backward of a program as one functional trace.

    Attributes:
        trace: inputs are the program's inputs followed by ``cotangents``; its output is the pair
            ``(outputs, gradients)``: what the program computes, and for each item of ``differentiable`` its gradient or
            None where none flows. The first ``forward_lines`` lines are the program's own, in the program's order.
        forward_lines: number of leading lines that run in the forward program if they have effects. Pure lines run
            wherever the partition puts them.
        cotangents: inputs that hold the gradients of outputs; no forward value depends on them.
        cotangent_of: for each cotangent the position in ``outputs`` of the value that it is the gradient of.
        differentiable: inputs of the program that gradients are computed for.
        constant: positions of outputs that do not require grad.
        recomputed: names of values that are computed again for the backward program where possible (they were made in a
            checkpoint region): they are never saved.
        overwritten: names of inputs that the epilogue writes after the forward program, so that only a copy of them can
            be saved.
        returned: positions of outputs that the caller of the program gets, and so keeps in memory as long as it likes.
        origins: number of lines of the program by where their derivative is from.
        offered: the lines that were differentiated, with what the executors answered; empty without executors.
        repeated: names of those of ``recomputed`` that lines give which backward calls again whatever their effects
            (`Tag.REPEATED`), and of what only lays out or casts these.
    """

    trace: Trace
    forward_lines: int
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

    def with_trace(self, trace: Trace) -> Joint:
        """The same with a trace from which a pass removed lines."""
        before = self.trace.symbols[: self.forward_lines]
        names = {proxy.name for bound in before for proxy in bound.outputs()}
        silent = sum(1 for bound in before if not any(True for _ in bound.outputs()))  # they have effects, and stay
        count = 0
        for index, bound in enumerate(trace.symbols):
            outputs = list(bound.outputs())
            if not outputs:
                silent -= 1
            if outputs[0].name in names if outputs else silent >= 0:
                count = index + 1
        return replace(self, trace=trace, forward_lines=count)

    @property
    def primals(self) -> tuple[Proxy, ...]:
        """The program's own inputs."""
        return self.trace.inputs[: len(self.trace.inputs) - len(self.cotangents)]

    @property
    def outputs(self) -> tuple[Proxy, ...]:
        """What the program computes."""
        outputs: tuple[Any, ...] = self.trace.output[0]
        return outputs

    @property
    def gradients(self) -> tuple[TensorProxy | None, ...]:
        """For each item of ``differentiable`` its gradient."""
        gradients: tuple[Any, ...] = self.trace.output[1]
        return gradients


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A joint trace as two programs.

    Attributes:
        forward: from the program's inputs to ``(*outputs, *saved)``, a flat tuple.
        backward: from ``(*saved, *cotangents)`` to the gradients, a flat tuple with None where there is none. Inputs of
            the program that backward needs are among ``saved``.
        saved: what backward takes from forward: inputs of the program, and values that it computed.
        outputs: number of outputs of the program.
        bytes_saved: memory that is kept for backward, in bytes; inputs of the program and what its caller gets do not
            count, memory that several values share counts once.
        recomputed: names of values that backward computes again.
    """

    forward: Trace
    backward: Trace
    saved: tuple[Proxy, ...]
    outputs: int
    bytes_saved: int
    recomputed: tuple[str, ...]

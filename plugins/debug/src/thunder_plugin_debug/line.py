"""The description of an operation of a compiled program for callbacks, tables and messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.symbol import Tag
from thunder_core.passes.transform import Phase
from thunder_plugin_debug.forward_arguments import WithArguments

_GRADIENT: Final = "the gradient of "
_AND: Final = " + "


@dataclass(frozen=True, slots=True)
class Line:
    """An operation of a compiled program.

    Attributes:
        phase: its program: "inference", "forward" or "backward".
        index: its position among the operations of that program, from 0.
        operation: the computation, by its name in traces: the PyTorch function that an executor's function replaces;
            for a fused region its operations joined with " + ".
        function: the called function.
        executor: the executor; "reference" for PyTorch.
        location: the user's line; None if there is none.
        inputs, outputs: names of its arguments and results in the trace.
    """

    phase: str
    index: int
    operation: str
    function: str
    executor: str
    location: SourceLocation | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def of(bound: BoundSymbol, index: int, phase: Phase) -> Line:
        """The description of ``bound``, which no transform of this package has wrapped yet."""
        return Line(
            phase.value,
            index,
            _operation(bound),
            _function(bound),
            bound.symbol.executor or "reference",
            bound.location,
            tuple(dict.fromkeys([proxy.name for proxy in bound.inputs()])),
            tuple([proxy.name for proxy in bound.outputs()]),
        )

    def describe(self) -> str:
        """Computation, executor and phase, without the user's line."""
        return f"{shortened(self.operation)}, run by {self.executor} in {self.phase}"

    @property
    def operations(self) -> tuple[str, ...]:
        """The names in `operation`: of a fused region one by one."""
        return tuple(self.operation.removeprefix(_GRADIENT).split(_AND))

    @property
    def place(self) -> str:
        """The user's line as ``file:line in function``; empty if there is none."""
        return "" if self.location is None else self.location.place()


def shortened(operation: str) -> str:
    """The computation for messages: for a fused region of more than four operations the first three."""
    names = operation.split(_AND)
    return operation if len(names) <= 4 else _AND.join([*names[:3], f"{len(names) - 3} more"])


def _function(bound: BoundSymbol) -> str:
    target = bound.symbol.target
    return target.name if isinstance(target, WithArguments) else bound.symbol.name


def _operation(bound: BoundSymbol) -> str:
    symbol = bound.symbol
    if symbol.reference is not None:
        name = symbol.reference.name
        return f"{_GRADIENT}{name}" if Tag.BACKWARD in symbol.tags else name
    if symbol.executor is not None and bound.parts:
        return _AND.join([part.symbol.name for part in bound.parts])
    return symbol.name

"""What an executor is: it answers, for each symbol, whether it runs it, and perhaps how it is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Symbol


@dataclass(frozen=True, slots=True)
class Claimed:
    """The executor runs the symbol.

    Attributes:
        executor: its name.
        implementation: what is called instead, with the same arguments; None for the symbol itself.
    """

    executor: str
    implementation: Symbol | None = None


@dataclass(frozen=True, slots=True)
class Declined:
    """The executor does not run the symbol, and says why."""

    executor: str
    reason: str


Decision = Claimed | Declined


@dataclass(frozen=True, slots=True)
class DerivativePair:
    """How an executor differentiates a line: two calls, which stand in the trace as they are.

    Neither may write to its arguments. Functions at the top level of a module are printed by their names; for others
    the trace is no program that can be saved.

    Attributes:
        forward: takes the line's arguments and returns ``(outputs, residuals)``: what the line returns, with the same
            shapes, strides, dtypes and devices, in new memory; and a tuple of whatever ``backward`` needs. Arguments
            and outputs that are among the residuals cost nothing to return. Numbers, strings and None among them must
            depend on metadata alone.
        backward: takes ``(residuals, cotangents, wanted)`` and returns a tuple of gradients. ``cotangents`` has an item
            for each tensor in ``outputs``: its gradient, with any strides, or None if it never gets one. ``wanted`` has
            a bool for each tensor among the line's arguments, in their order; so has the result a tensor for each that
            is True, with the shape and dtype of the argument, and None for the others. Backward runs again when the
            user retains the graph.
        fake: called like ``forward`` with fake tensors; gives tensors of the right metadata without computing. None:
            ``forward`` and ``backward`` themselves work on fake tensors, as calls of PyTorch and of custom operators
            with a fake implementation do. With ``fake``, gradients must have the strides of `torch.empty_like` of their
            arguments.
        pure: False if ``forward`` does more than to compute its results, like updating a state: it then runs once for
            each call of the program, and in order. Otherwise it may run again for backward where the partition finds
            that worthwhile, or a checkpoint asks for it.
    """

    forward: Callable[..., tuple[Any, tuple[Any, ...]]]
    backward: Callable[[tuple[Any, ...], tuple[Any, ...], tuple[bool, ...]], tuple[Any, ...]]
    fake: Callable[..., tuple[Any, tuple[Any, ...]]] | None = None
    pure: bool = True


class Executor(Protocol):
    """Claims single symbols. `claim` is a pure query: it changes nothing, and may be asked any number of times.

    Executors are hashable; those that are equal answer equally.
    """

    @property
    def name(self) -> str:
        """The name in configurations and reports."""

    def claim(self, bound: BoundSymbol) -> Decision:
        """Whether this executor runs ``bound``."""


@runtime_checkable
class DifferentiatingExecutor(Executor, Protocol):
    """An executor that has derivatives of its own for some of the lines that it claims."""

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        """The pair for a line that this executor claims. A pure query, asked once for equal lines.

        None: the line is differentiated like any other, and the executor may still run what then stands in forward.
        """

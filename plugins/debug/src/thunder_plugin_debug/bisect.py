"""Comparison of each operation of an executor with the reference, to locate the first that differs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace
from thunder_core.passes.transform import Phase, Place, TransformContext
from thunder_plugin_debug.comparison import ComparedBackward, ComparedCall
from thunder_plugin_debug.debug_transform import DebugTransform
from thunder_plugin_debug.difference import Tolerance
from thunder_plugin_debug.divergence import Divergence, Skipped
from thunder_plugin_debug.forward_arguments import pass_arguments
from thunder_plugin_debug.journal import Action, Journal
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, MakeCall, selected
from thunder_plugin_debug.options import BisectOptions
from thunder_plugin_debug.reference import reference_of, why_not_compared


@dataclass(frozen=True, eq=False)
class Bisect(DebugTransform):
    """Runs each operation that an executor claimed with the executor and with PyTorch, on the same arguments.

    The program continues with the executor's result, so each operation is compared independently of earlier errors. A
    fused region is compared with its operations run one by one, the forward of a derivative pair with the function that
    it replaces, and its backward with PyTorch's autograd of that function, for which the arguments of forward are
    saved.

    Attributes:
        rtol, atol: tolerances, see `Tolerance`.
        action: raise `DivergenceError` at the first operation that differs, warn once per operation and continue, or
            only record it in ``divergences``.
    """

    name: ClassVar[str] = "bisect"
    also: ClassVar[tuple[Place, ...]] = (Place.AFTER_DIFFERENTIATION,)
    after: ClassVar[tuple[str, ...]] = ("line_timing", "nvtx_ranges", "nan_finder", "line_callbacks")

    rtol: float | None = None
    atol: float | None = None
    action: Action = "error"

    def __post_init__(self) -> None:
        self.check_choice("action", ("error", "warn", "record"))

    @property
    def divergences(self) -> tuple[Divergence, ...]:
        """The operations that differ, in order of detection; for each the first difference."""
        return tuple(self._journal.divergences.values())

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Operations of executors that are not compared, with the reason."""
        return tuple(self._journal.skipped.values())

    @property
    def comparisons(self) -> int:
        """The number of comparisons so far."""
        return self._journal.comparisons

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self.action)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The program with comparing operations; the joint trace with operations that save arguments for them."""
        if context.phase is Phase.JOINT:
            return pass_arguments(trace, lambda bound: self._wants(bound, context), self.name)
        return super().run(trace, context) if context.place is not Place.AFTER_DIFFERENTIATION else trace

    def calls(self, trace: Trace) -> MakeCall:
        """Replace each operation of an executor by a comparison."""
        tolerance = Tolerance(self.rtol, self.atol)

        def make(line: Line, bound: BoundSymbol) -> LineCall | None:
            if bound.symbol.executor is None:
                return None
            reason = why_not_compared(bound)
            if reason is not None:
                self._journal.skip(line, reason)
                return None
            kind = ComparedBackward if Tag.BACKWARD in bound.symbol.tags else ComparedCall
            return kind(line, bound, reference_of(bound, trace), tolerance, self._journal)

        return make

    def _wants(self, bound: BoundSymbol, context: TransformContext) -> bool:
        return selected(Line.of(bound, 0, context.phase), self.include, self.exclude)


def from_options(options: BisectOptions) -> Bisect:
    """The transform for the options of a configuration."""
    return Bisect(options.include, options.exclude, options.rtol, options.atol, options.action)

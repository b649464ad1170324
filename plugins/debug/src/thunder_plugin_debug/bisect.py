"""Compare each line of an executor with the reference, and name the first that differs."""

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
from thunder_plugin_debug.journal import Action, Journal
from thunder_plugin_debug.kept_arguments import keep_arguments
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, MakeCall, selected
from thunder_plugin_debug.options import BisectOptions
from thunder_plugin_debug.reference import reference_of, why_not_compared


@dataclass(frozen=True, eq=False)
class Bisect(DebugTransform):
    """Runs each line that an executor claimed by that executor and by PyTorch, on the same arguments.

    The program goes on with what the executor gave, so each line is judged by itself, whatever went wrong before. A
    fused region is compared with its lines run one by one; the forward of a pair with the function that it stands for,
    and its backward with PyTorch's autograd of that function, for which the arguments of forward are saved.

    Attributes:
        rtol, atol: tolerances, as `Tolerance` takes them.
        action: raise `DivergenceError` at the first line that differs, warn about each line once and go on, or only add
            it to ``divergences``.
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
        """The lines that differ, in the order in which they were met; of each the first time."""
        return tuple(self._journal.divergences.values())

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """Lines of executors that are not compared, and why."""
        return tuple(self._journal.skipped.values())

    @property
    def comparisons(self) -> int:
        """How many calls of lines were compared so far."""
        return self._journal.comparisons

    @cached_property
    def _journal(self) -> Journal:
        return Journal(self.action)

    def run(self, trace: Trace, context: TransformContext) -> Trace:
        """The program with lines that compare; the joint trace with lines that keep what they will need for that."""
        if context.phase is Phase.JOINT:
            return keep_arguments(trace, lambda bound: self._wants(bound, context), self.name)
        return super().run(trace, context) if context.place is not Place.AFTER_DIFFERENTIATION else trace

    def calls(self, trace: Trace) -> MakeCall:
        """Each line of an executor with a comparison."""
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
    """The transform that a configuration asks for."""
    return Bisect(options.include, options.exclude, options.rtol, options.atol, options.action)

"""Detection of the first operation that produces a NaN or an infinity."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_plugin_debug.debug_transform import DebugTransform
from thunder_plugin_debug.errors import DebugWarning, NonFiniteError
from thunder_plugin_debug.finding import Finding
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.line_call import LineCall, MakeCall
from thunder_plugin_debug.nan_check import CheckedCall, Given, leaves_memory_as_it_is
from thunder_plugin_debug.non_finite import INFINITY, NAN
from thunder_plugin_debug.options import NanFinderOptions
from thunder_plugin_debug.reference import is_region
from thunder_plugin_debug.region_search import search_region


@dataclass(frozen=True, eq=False)
class NanFinder(DebugTransform):
    """Checks the floating-point and complex results of each operation.

    An operation is reported if its results contain a NaN and its arguments do not, or if it reads an input of the
    program that contains one. Operations that propagate a NaN, have one as a literal (``masked_fill(mask, nan)``), or
    do not initialize memory (`torch.empty`) are not reported. With ``inf`` the same applies to infinities, except to
    those in inputs of the program.

    Attributes:
        inf: check for infinities as well.
        inputs: check the inputs of the program, with ``inf`` for infinities too, where an operation first reads them.
        action: raise `NonFiniteError` at the first finding, or warn once per operation and continue.
    """

    name: ClassVar[str] = "nan_finder"
    after: ClassVar[tuple[str, ...]] = ("line_timing", "nvtx_ranges")

    inf: bool = False
    inputs: bool = False
    action: Literal["error", "warn"] = "error"

    def __post_init__(self) -> None:
        self.check_choice("action", ("error", "warn"))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings so far, the first of each operation."""
        return tuple(self._findings.values())

    @cached_property
    def _findings(self) -> dict[tuple[Line, str, bool], Finding]:
        return {}

    def calls(self, trace: Trace) -> MakeCall:
        """Check the results of each operation."""
        given = Given(trace)
        kinds = (NAN, INFINITY) if self.inf else (NAN,)

        def make(line: Line, bound: BoundSymbol) -> LineCall | None:
            if leaves_memory_as_it_is(bound):
                return None
            checked = given.first_at(bound) if self.inputs else frozenset[str]()
            search = partial(search_region, bound, trace) if is_region(bound) else None
            return CheckedCall(line, bound, given.at(bound), checked, kinds, self._report, search)

        return make

    def _report(self, finding: Finding) -> None:
        key = (finding.line, finding.kind, finding.came_in)
        known = self._findings.setdefault(key, finding)
        error = NonFiniteError(finding)
        if self.action == "error":
            raise error
        if known is finding:
            warnings.warn(str(error), DebugWarning, stacklevel=4)


def from_options(options: NanFinderOptions) -> NanFinder:
    """The transform for the options of a configuration."""
    return NanFinder(options.include, options.exclude, options.inf, options.inputs, options.action)

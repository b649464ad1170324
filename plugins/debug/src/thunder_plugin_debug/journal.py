"""The results of `bisect` so far."""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Final, Literal

from thunder_core.forking import renew_in_child
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_plugin_debug.difference import Difference
from thunder_plugin_debug.divergence import Divergence, Skipped
from thunder_plugin_debug.errors import DebugWarning, DivergenceError
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.reference import is_region
from thunder_plugin_debug.suspects import suspects

Action = Literal["error", "warn", "record"]

_LOCK: Final = threading.Lock()  # shared by all, because it is only held for an addition
renew_in_child(sys.modules[__name__], "_LOCK")


class Journal:
    """Records the results of comparisons, and raises or warns if an operation differs.

    Attributes:
        action: raise, warn once per operation, or only record.
        divergences: the first divergence of each operation.
        skipped: operations that are not compared.
        comparisons: number of comparisons.
    """

    def __init__(self, action: Action) -> None:
        self.action = action
        self.divergences: dict[Line, Divergence] = {}
        self.skipped: dict[Line, Skipped] = {}
        self.comparisons = 0

    def skip(self, line: Line, reason: str) -> None:
        """Record that an operation is not compared."""
        self.skipped.setdefault(line, Skipped(line, reason))

    def compared(self, line: Line, bound: BoundSymbol, differences: tuple[Difference, ...]) -> None:
        """Record the comparison of one call.

        Raises:
            DivergenceError: there are differences, and the action is to raise.
        """
        with _LOCK:
            self.comparisons += 1
        if not differences:
            return
        divergence = _divergence(line, bound, differences)
        known = self.divergences.setdefault(line, divergence)
        error = DivergenceError(divergence)
        if self.action == "error":
            raise error
        if self.action == "warn" and known is divergence:
            warnings.warn(str(error), DebugWarning, stacklevel=3)


def _divergence(line: Line, bound: BoundSymbol, differences: tuple[Difference, ...]) -> Divergence:
    wrong = {difference.value for difference in differences} & {proxy.name for proxy in bound.outputs()}
    accused = suspects(bound, wrong) if is_region(bound) and wrong else ()
    names = tuple([part.symbol.name for part in accused])
    return Divergence(line, differences, names, (accused[-1] if accused else bound).location)

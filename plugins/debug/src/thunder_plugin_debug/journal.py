"""What a bisection found so far."""

from __future__ import annotations

import threading
import warnings
from typing import Final, Literal

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_plugin_debug.difference import Difference
from thunder_plugin_debug.divergence import Divergence, Skipped
from thunder_plugin_debug.errors import DebugWarning, DivergenceError
from thunder_plugin_debug.line import Line
from thunder_plugin_debug.reference import is_region
from thunder_plugin_debug.suspects import suspects

Action = Literal["error", "warn", "record"]

_LOCK: Final = threading.Lock()  # one for all: it is held for an addition


class Journal:
    """Takes down what comparisons give, and raises or warns where a line differs.

    Attributes:
        action: what to do about a line that differs: raise, warn the first time, or nothing.
        divergences: the first of each line.
        skipped: lines that were not compared.
        comparisons: how many there were.
    """

    def __init__(self, action: Action) -> None:
        self.action = action
        self.divergences: dict[Line, Divergence] = {}
        self.skipped: dict[Line, Skipped] = {}
        self.comparisons = 0

    def skip(self, line: Line, reason: str) -> None:
        """A line was not compared."""
        self.skipped.setdefault(line, Skipped(line, reason))

    def compared(self, line: Line, bound: BoundSymbol, differences: tuple[Difference, ...]) -> None:
        """A call of a line was compared.

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
    wrong = {found.value for found in differences} & {proxy.name for proxy in bound.outputs()}
    accused = suspects(bound, wrong) if is_region(bound) and wrong else ()
    names = tuple([part.symbol.name for part in accused])
    return Divergence(line, differences, names, (accused[-1] if accused else bound).location)

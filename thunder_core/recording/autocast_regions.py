"""The regions of autocast of a program that is being recorded."""

from __future__ import annotations

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.effects import Effects
from thunder_core.ir.location import SourceLocation
from thunder_core.symbols.functions import CLEAR_CACHE


class AutocastRegions:
    """Whether the next op under autocast may reuse casts of parameters: PyTorch forgets them where a region ends."""

    def __init__(self) -> None:
        self._used = False  # by an op, since the last region ended
        self._left = False  # a region that an op used, and no op was recorded since

    def leave(self) -> None:
        """The program leaves the outermost region of autocast, or clears the cache of casts."""
        self._left |= self._used
        self._used = False

    def before_op(self, location: SourceLocation | None) -> list[BoundSymbol]:
        """What is to be recorded before an op under autocast: the op that clears the cache, or nothing."""
        cleared, self._left, self._used = self._left, False, True
        return [BoundSymbol(CLEAR_CACHE, (), {}, None, Effects(external=True), None, location)] if cleared else []

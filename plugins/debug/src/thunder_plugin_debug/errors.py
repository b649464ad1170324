"""Exceptions and warnings of the transforms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.errors import ThunderError

if TYPE_CHECKING:
    from thunder_plugin_debug.divergence import Divergence
    from thunder_plugin_debug.finding import Finding


class NonFiniteError(ThunderError, ArithmeticError):
    """An operation produced a NaN or an infinity, or an input contains one. ``finding`` has the details."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.problem, location=finding.location, advice=finding.advice)


class DivergenceError(ThunderError, RuntimeError):
    """An executor's result differs from the reference. ``divergence`` has the details."""

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__(divergence.problem, location=divergence.location, advice=divergence.advice)


class DebugWarning(UserWarning):
    """A problem that is an error with ``action="error"``."""

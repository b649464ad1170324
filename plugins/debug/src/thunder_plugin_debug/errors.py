"""What the transforms raise and warn with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.errors import ThunderError

if TYPE_CHECKING:
    from thunder_plugin_debug.divergence import Divergence
    from thunder_plugin_debug.finding import Finding


class NonFiniteError(ThunderError, ArithmeticError):
    """A line made a NaN or an infinity, or one came in. ``finding`` has the particulars."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.problem, location=finding.location, advice=finding.advice)


class DivergenceError(ThunderError, RuntimeError):
    """An executor's line does something else than the reference. ``divergence`` has the particulars."""

    def __init__(self, divergence: Divergence) -> None:
        self.divergence = divergence
        super().__init__(divergence.problem, location=divergence.location, advice=divergence.advice)


class DebugWarning(UserWarning):
    """What would have been an error, had the transform not been asked to warn."""

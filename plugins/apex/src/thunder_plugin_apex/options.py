"""The options of the executor."""

from __future__ import annotations

from thunder_core.plugins import ExecutorOptions


class ApexOptions(ExecutorOptions):
    """Options of ``apex``."""

    memory_efficient: bool = False
    """Normalizations keep their result for backward instead of their argument, which saves memory where the result is
    kept anyway, for the linear layer that follows. Backward then divides by the weight: gradients are inexact where it
    is near zero."""

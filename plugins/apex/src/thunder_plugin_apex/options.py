"""The options of the executor."""

from __future__ import annotations

from thunder_core.plugins import ExecutorOptions


class ApexOptions(ExecutorOptions):
    """Options of ``apex``."""

    memory_efficient: bool = False
    """Normalizations save their result for backward instead of their input. This saves memory if the result is saved
    anyway, for the following linear layer. Backward then divides by the weight, so gradients are inexact if it is near
    zero.
    """

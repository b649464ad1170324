"""An estimate of the memory that a program needs."""

from __future__ import annotations

from thunder_core.ir.lifetimes import moments
from thunder_core.ir.trace import Trace


def peak_bytes(trace: Trace) -> int:
    """Bytes of the storages that a program creates, where most are alive; without workspaces of its ops.

    Args:
        trace: the program, with deletions.
    """
    return max(moment.bytes for moment in moments({trace.name: trace}))

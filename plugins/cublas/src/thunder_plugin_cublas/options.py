"""The options of the executor."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

CANDIDATES: Final = 8
"""As many as cuBLASLt 13.0 proposes at most."""


class CublasOptions(ExecutorOptions):
    """Options of ``cublas``."""

    candidates: int = Field(default=CANDIDATES, ge=1, le=64)
    """How many algorithms are timed for a product of new sizes, the first of those that cuBLASLt proposes. With 1 its
    first proposal is taken, and nothing is timed."""
    least_operations: int = Field(default=1 << 31, ge=0)
    """Smaller products are left to the executors after this one. A product of M x K by K x N has 2 M N K operations;
    one of 2^31 takes an H200 about 3 us, which is what the call costs the host."""

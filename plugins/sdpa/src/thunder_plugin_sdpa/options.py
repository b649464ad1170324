"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

BackendName = Literal["cudnn", "flash", "efficient", "math"]


class SdpaOptions(ExecutorOptions):
    """Options of ``sdpa``."""

    backends: tuple[BackendName, ...] = Field(default=("cudnn", "flash", "efficient"), min_length=1)
    """Kernels in order of preference. The first that supports a call runs it; if none does, PyTorch chooses. `math` is
    the formula in PyTorch operations, which other executors can fuse.
    """
    grouped: bool = True
    """If the program repeats keys and values for groups of query heads, and the kernel supports fewer key heads, pass
    them to the kernel without the copies. This also avoids the sums over the copies in backward.
    """

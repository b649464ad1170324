"""The options of the executor."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from thunder_core.plugins import ExecutorOptions

BackendName = Literal["cudnn", "flash", "efficient", "math"]


class SdpaOptions(ExecutorOptions):
    """Options of ``sdpa``."""

    backends: tuple[BackendName, ...] = Field(default=("cudnn", "flash", "efficient"), min_length=1)
    """Kernels in order of preference; each call goes to the first that takes it, and to PyTorch's own choice if none
    does. `math` is the formula in PyTorch operations, which other executors can fuse."""
    grouped: bool = True
    """Give keys and values that the program repeats for groups of query heads to the kernel as they were before, where
    it takes fewer heads of them. Neither the copies nor the sums over them in backward are made then."""

"""The options of the executor."""

from __future__ import annotations

from thunder_core.plugins import ExecutorOptions


class TritonOptions(ExecutorOptions):
    """Options of ``triton``."""

    autotune: bool = True
    """Time the candidates of a kernel's block sizes at the first launch with a new size on a GPU, and cache the fastest
    on disk, in `THUNDER_CACHE_DIR`. Otherwise, and under `torch.use_deterministic_algorithms`, a fixed table is used.
    """

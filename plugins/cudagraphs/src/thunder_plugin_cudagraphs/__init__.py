"""Capture of whole programs as CUDA graphs. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_cudagraphs.device import release_memory
    from thunder_plugin_cudagraphs.program_statistics import ProgramStatistics, statistics
    from thunder_plugin_cudagraphs.transform import CUDAGraphs

__all__ = ["CUDAGraphs", "ProgramStatistics", "release_memory", "statistics"]

__getattr__ = lazy_imports(
    __name__,
    {
        "CUDAGraphs": "transform",
        "ProgramStatistics": "program_statistics",
        "release_memory": "device",
        "statistics": "program_statistics",
    },
)

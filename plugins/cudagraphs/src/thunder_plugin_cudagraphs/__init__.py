"""Whole programs as CUDA graphs. What is here is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunder_plugin_cudagraphs.device import release_memory
    from thunder_plugin_cudagraphs.program_statistics import ProgramStatistics, statistics
    from thunder_plugin_cudagraphs.transform import CUDAGraphs

_MODULES = {
    "CUDAGraphs": "transform",
    "ProgramStatistics": "program_statistics",
    "release_memory": "device",
    "statistics": "program_statistics",
}

__all__ = ["CUDAGraphs", "ProgramStatistics", "release_memory", "statistics"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

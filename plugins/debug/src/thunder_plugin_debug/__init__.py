"""Transforms that inspect the operations of compiled programs. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_debug.bisect import Bisect
    from thunder_plugin_debug.divergence import Divergence
    from thunder_plugin_debug.errors import DebugWarning, DivergenceError, NonFiniteError
    from thunder_plugin_debug.finding import Finding
    from thunder_plugin_debug.line import Line
    from thunder_plugin_debug.line_callbacks import LineCallbacks
    from thunder_plugin_debug.line_timing import LineTiming
    from thunder_plugin_debug.nan_finder import NanFinder
    from thunder_plugin_debug.nvtx_ranges import NvtxRanges
    from thunder_plugin_debug.timing_record import TimingRecord

__all__ = [
    "Bisect",
    "DebugWarning",
    "Divergence",
    "DivergenceError",
    "Finding",
    "Line",
    "LineCallbacks",
    "LineTiming",
    "NanFinder",
    "NonFiniteError",
    "NvtxRanges",
    "TimingRecord",
]

__getattr__ = lazy_imports(
    __name__,
    {
        "Bisect": "bisect",
        "DebugWarning": "errors",
        "Divergence": "divergence",
        "DivergenceError": "errors",
        "Finding": "finding",
        "Line": "line",
        "LineCallbacks": "line_callbacks",
        "LineTiming": "line_timing",
        "NanFinder": "nan_finder",
        "NonFiniteError": "errors",
        "NvtxRanges": "nvtx_ranges",
        "TimingRecord": "timing_record",
    },
)

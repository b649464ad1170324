"""The hooks of the plugin. Importing this module imports neither PyTorch nor the transforms."""

from __future__ import annotations

from thunder_core.plugins import CheckSpec, TransformSpec, hookimpl
from thunder_plugin_debug.options import (
    BisectOptions,
    LineCallbacksOptions,
    LineTimingOptions,
    NanFinderOptions,
    NvtxRangesOptions,
)


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Five transforms that run last, because they wrap executable operations."""
    return [
        TransformSpec(
            "line_callbacks",
            "thunder_plugin_debug.line_callbacks:from_options",
            LineCallbacksOptions,
            "calls user functions before and after each operation",
        ),
        TransformSpec(
            "line_timing",
            "thunder_plugin_debug.line_timing:from_options",
            LineTimingOptions,
            "measures the time of each operation",
        ),
        TransformSpec(
            "nan_finder",
            "thunder_plugin_debug.nan_finder:from_options",
            NanFinderOptions,
            "locates the first operation that produces a NaN or an infinity",
        ),
        TransformSpec(
            "nvtx_ranges",
            "thunder_plugin_debug.nvtx_ranges:from_options",
            NvtxRangesOptions,
            "marks each operation for NVIDIA's profilers",
        ),
        TransformSpec(
            "bisect",
            "thunder_plugin_debug.bisect:from_options",
            BisectOptions,
            "compares each operation of an executor with the reference and locates the first that differs",
        ),
    ]


@hookimpl
def thunder_doctor() -> list[CheckSpec]:
    """A check that PyTorch has the private names that the plugin uses."""
    return [CheckSpec("private names of PyTorch", "thunder_plugin_debug.pytorch_internals:NAMES")]

"""What the plugin offers. Importing this imports neither PyTorch nor the transforms."""

from __future__ import annotations

from thunder_core.plugins import Check, TransformSpec, hookimpl
from thunder_plugin_debug.options import (
    BisectOptions,
    LineCallbacksOptions,
    LineTimingOptions,
    NanFinderOptions,
    NvtxRangesOptions,
)


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Five transforms of the last place: they wrap the lines that run."""
    return [
        TransformSpec(
            "line_callbacks",
            "thunder_plugin_debug.line_callbacks:from_options",
            LineCallbacksOptions,
            "calls functions of yours before and after each line",
        ),
        TransformSpec(
            "line_timing",
            "thunder_plugin_debug.line_timing:from_options",
            LineTimingOptions,
            "measures the time of each line",
        ),
        TransformSpec(
            "nan_finder",
            "thunder_plugin_debug.nan_finder:from_options",
            NanFinderOptions,
            "names the first line that makes a NaN, or an infinity",
        ),
        TransformSpec(
            "nvtx_ranges",
            "thunder_plugin_debug.nvtx_ranges:from_options",
            NvtxRangesOptions,
            "marks each line for NVIDIA's profilers",
        ),
        TransformSpec(
            "bisect",
            "thunder_plugin_debug.bisect:from_options",
            BisectOptions,
            "compares each executor's line with the reference and names the first that differs",
        ),
    ]


@hookimpl
def thunder_doctor() -> list[Check]:
    """Whether PyTorch has the private names that are used."""
    return [Check("private names of PyTorch", "thunder_plugin_debug.pytorch_internals:NAMES")]

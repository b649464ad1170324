"""Transforms that change memory layouts inside of a program. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_layouts.attention_layout import AttentionLayout
    from thunder_plugin_layouts.convolution_layout import ConvolutionLayout
    from thunder_plugin_layouts.copy_pinned_views import CopyPinnedViews
    from thunder_plugin_layouts.direct_views import DirectViews
    from thunder_plugin_layouts.separate_bias import SeparateBias

__all__ = ["AttentionLayout", "ConvolutionLayout", "CopyPinnedViews", "DirectViews", "SeparateBias"]

__getattr__ = lazy_imports(
    __name__,
    {
        "AttentionLayout": "attention_layout",
        "ConvolutionLayout": "convolution_layout",
        "CopyPinnedViews": "copy_pinned_views",
        "DirectViews": "direct_views",
        "SeparateBias": "separate_bias",
    },
)

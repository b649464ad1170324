"""Transforms that change memory layouts inside a program. What is here is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thunder_plugin_layouts.attention_layout import AttentionLayout
    from thunder_plugin_layouts.convolution_layout import ConvolutionLayout
    from thunder_plugin_layouts.copy_pinned_views import CopyPinnedViews
    from thunder_plugin_layouts.separate_bias import SeparateBias

_MODULES = {
    "AttentionLayout": "attention_layout",
    "ConvolutionLayout": "convolution_layout",
    "CopyPinnedViews": "copy_pinned_views",
    "SeparateBias": "separate_bias",
}

__all__ = ["AttentionLayout", "ConvolutionLayout", "CopyPinnedViews", "SeparateBias"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)

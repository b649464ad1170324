"""The core's own transforms, from their options."""

from __future__ import annotations

from typing import Any

from thunder_core.passes.attention_layout import AttentionLayout
from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding
from thunder_core.passes.convolution_layout import ConvolutionLayout
from thunder_core.passes.copy_pinned_views import CopyPinnedViews
from thunder_core.passes.direct_views import DirectViews
from thunder_core.passes.separate_bias import SeparateBias
from thunder_core.passes.widen_products import WidenProducts


def constant_folding(options: Any) -> ConstantFolding:
    """With the attribute ``limit`` of the options."""
    return ConstantFolding(limit=options.limit)


def common_subexpression(options: Any) -> CommonSubexpression:
    """Without options of its own."""
    return CommonSubexpression()


def widen_products(options: Any) -> WidenProducts:
    """Without options of its own."""
    return WidenProducts()


def attention_layout(options: Any) -> AttentionLayout:
    """Without options of its own."""
    return AttentionLayout()


def copy_pinned_views(options: Any) -> CopyPinnedViews:
    """Without options of its own."""
    return CopyPinnedViews()


def separate_bias(options: Any) -> SeparateBias:
    """Without options of its own."""
    return SeparateBias()


def convolution_layout(options: Any) -> ConvolutionLayout:
    """Without options of its own."""
    return ConvolutionLayout()


def direct_views(options: Any) -> DirectViews:
    """Without options of its own."""
    return DirectViews()

"""The core's own transforms, from their options."""

from __future__ import annotations

from typing import Any

from thunder_core.passes.common_subexpression import CommonSubexpression
from thunder_core.passes.constant_folding import ConstantFolding
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

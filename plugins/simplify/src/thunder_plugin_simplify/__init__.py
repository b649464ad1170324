"""Transforms that remove redundant operations from a program. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_simplify.common_subexpression import CommonSubexpression
    from thunder_plugin_simplify.constant_folding import ConstantFolding

__all__ = ["CommonSubexpression", "ConstantFolding"]

__getattr__ = lazy_imports(
    __name__,
    {"CommonSubexpression": "common_subexpression", "ConstantFolding": "constant_folding"},
)

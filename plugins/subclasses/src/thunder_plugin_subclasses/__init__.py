"""Wrapper subclasses of tensors in compiled programs. Modules are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_subclasses.wrappers import Wrappers

__all__ = ["Wrappers"]

__getattr__ = lazy_imports(__name__, {"Wrappers": "wrappers"})

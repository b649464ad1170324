"""Training steps as one program. Names are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thunder_core.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from thunder_plugin_training.inline_backward import InlineBackward

__all__ = ["InlineBackward"]

__getattr__ = lazy_imports(__name__, {"InlineBackward": "inline_backward"})

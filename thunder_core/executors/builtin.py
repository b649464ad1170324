"""The executors of the core, from their options."""

from __future__ import annotations

from typing import Any

from thunder_core.executors.reference import REFERENCE, ReferenceExecutor


def reference(options: Any) -> ReferenceExecutor:
    """The reference executor, which has no options."""
    return REFERENCE

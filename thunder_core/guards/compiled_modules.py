"""How the guards recognize compiled modules: they read the original, which shares its attributes with them."""

from __future__ import annotations

from typing import Any, Final

from torch.nn import Module

ORIGINAL: Final = "_thunder_original"
"""The slot in which a compiled module holds its original. Only classes of compiled modules define it."""


def original_of(value: Any) -> Module | None:
    """The module that a compiled module replaces; None for everything else."""
    if ORIGINAL not in type(value).__dict__:
        return None
    original: Module = getattr(value, ORIGINAL)
    return original

"""Compiled programs among the objects of a program: their originals are read in their place."""

from __future__ import annotations

from typing import Any, Final

from torch.nn import Module

from thunder_core.ir.import_paths import module_of
from thunder_core.tracing.frames import PACKAGES

ORIGINAL: Final = "_thunder_original"
"""The slot of a compiled module that refers to its original. Only classes of compiled modules define it."""


def original_of(value: Any) -> Module | None:
    """The module from which a compiled module was compiled, with which it shares all attributes; None for all else.

    Guards read the original in place of the compiled module.
    """
    if ORIGINAL not in type(value).__dict__:
        return None
    original: Module = getattr(value, ORIGINAL)
    return original


def uncompiled(value: Any) -> Any:
    """The module from which a compiled module was compiled; every other object itself."""
    original = original_of(value)
    return value if original is None else original  # a container without modules is false


def is_compiled(value: Any) -> bool:
    """Whether an object is one of Thunder's, such as a compiled program, in whose place its original is read."""
    return module_of(type(value)).partition(".")[0] in PACKAGES

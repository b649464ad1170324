"""The pattern table: how models spell composites out, by area, one file each.

To add a spelling, write it as a function of the composite's parameters and give it a row. Of two rows that fit, the
first is taken; so the longer one stands before the shorter.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Final

from thunder_core.passes.patterns.pattern import Pattern

AREAS: Final = ("losses", "autocast_losses", "normalization", "rotary", "gating", "softmax")
"""Modules of this package, each with a list ``PATTERNS``."""

_added: list[Pattern] = []


def all_patterns() -> tuple[Pattern, ...]:
    """The rows of every area, and those that plugins added."""
    return (*[row for area in AREAS for row in import_module(f"{__name__}.{area}").PATTERNS], *_added)


def add_patterns(patterns: Iterable[Pattern]) -> None:
    """Add rows of a plugin; those that are there already, the same objects, stay."""
    _added.extend([one for one in patterns if one not in _added])

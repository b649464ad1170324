"""The pattern table: how models spell composites out. Its rows are those of plugins."""

from __future__ import annotations

from collections.abc import Iterable

from thunder_core.passes.patterns.pattern import Pattern

_added: list[Pattern] = []


def all_patterns() -> tuple[Pattern, ...]:
    """The rows, in the order in which they were added. Of two that fit the same lines, the first is taken."""
    return tuple(_added)


def add_patterns(patterns: Iterable[Pattern]) -> None:
    """Add rows of a plugin; those that are there already, the same objects, stay."""
    _added.extend([one for one in patterns if one not in _added])

"""What a configuration was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from thunder_core.config.problems import Problem, Trail, written


@dataclass(frozen=True)
class Document:
    """A configuration as it was written.

    Attributes:
        value: plain data.
        file: as the user named it; None for what was given in Python.
        lines: of what stands in the file; the first is 1.
        folder: what the paths in it are relative to.
        identity: the same for all documents that were read from the same file.
        problems: those that were found while it was read. ``value`` has what is there besides.
    """

    value: Mapping[str, Any]
    file: str | None = None
    lines: Mapping[Trail, int] = field(default_factory=dict)
    folder: Path | Traversable = Path()
    identity: str = ""
    problems: tuple[Problem, ...] = ()

    def problem(self, trail: Trail, text: str, advice: tuple[str, ...] = ()) -> Problem:
        """A problem at a place of this document."""
        return Problem(self.file, self.line(trail), written(trail), text, advice)

    def line(self, trail: Trail) -> int | None:
        """Where that, or what it would belong to, stands in the file."""
        while trail and trail not in self.lines:
            trail = trail[:-1]
        return self.lines.get(trail)

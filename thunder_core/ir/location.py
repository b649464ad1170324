"""Source locations: the lines of the user's program that ops come from."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thunder_core.ir.profiler_ranges import ProfilerRange


def one_line(text: str) -> str:
    """``text`` for a comment of generated source: line breaks and other unprintable characters are escaped."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's program: file name as CPython reports it, 1-based line, function name.

    Attributes:
        ranges: the ranges of the profiler that it is in, the outermost first. Comparisons ignore them.
        module: the path of the innermost submodule that is called there, ``layers.1.mlp``; empty if there is none.
    """

    filename: str
    line: int
    function: str
    ranges: tuple[ProfilerRange, ...] = field(default=(), compare=False)
    module: str = ""

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty when the file is not readable."""
        return linecache.getline(self.filename, self.line).strip()

    @property
    def columns(self) -> tuple[int, int]:
        """The first and the end column of the text in its line, in bytes of UTF-8."""
        line = linecache.getline(self.filename, self.line).rstrip()
        return len(line) - len(line.lstrip()), len(line.encode())

    def describe(self) -> str:
        """``file:line in function (module): text``, for messages."""
        text = self.text
        return self.place() + (f": {text}" if text else "")

    def place(self) -> str:
        """``file:line in function (module)``, for tables."""
        module = f" ({self.module})" if self.module else ""
        return f"{self.filename}:{self.line} in {self.function}{module}"


def at(location: SourceLocation | None, before: str = ", at ") -> str:
    """For the end of a message: ``before`` and the location; empty if it is unknown."""
    return "" if location is None else before + location.describe()

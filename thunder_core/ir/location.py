"""Where in the user's program a symbol was called."""

from __future__ import annotations

import linecache
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A line of the user's program: file name as CPython reports it, 1-based line, function name."""

    filename: str
    line: int
    function: str

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty when the file is not readable."""
        return linecache.getline(self.filename, self.line).strip()

    def describe(self) -> str:
        """``file:line in function: text``, for messages."""
        text = self.text
        return self.place() + (f": {text}" if text else "")

    def place(self) -> str:
        """``file:line in function``, for tables."""
        return f"{self.filename}:{self.line} in {self.function}"

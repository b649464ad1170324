"""What is wrong with a configuration, and where."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thunder_core.errors import ConfigError

Trail = tuple[str | int, ...]
"""The way to a value from the top of a configuration: names, and indices of lists."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        file: as the user named it; None for what was given in Python.
        line: the first is 1; None for what was given in Python, and for a file that could not be read.
        place: like ``executors[1].nvfuser.cach``; empty for the whole.
        text: what is wrong, one sentence.
        advice: what to do about it, if the sentence does not say so.
    """

    file: str | None
    line: int | None
    place: str
    text: str
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = "" if self.file is None else f"{self.file}: " if self.line is None else f"{self.file}:{self.line}: "
        if not self.place:
            return where + self.text
        argument = self.file is None and self.place.isidentifier() and self.text.startswith(("'", '"'))
        return f"{where}{self.place}{'=' if argument else ': '}{self.text}"


def written(trail: Trail) -> str:
    """A trail as problems show it."""
    text = ""
    for step in trail:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, those of one file by line."""
    found = list(dict.fromkeys(problems))
    files = list(dict.fromkeys(problem.file for problem in found))
    return sorted(found, key=lambda problem: (files.index(problem.file), problem.line or 0))


def refuse(problems: Iterable[Problem]) -> None:
    """Raise ConfigError for these problems, all at once; nothing if there are none."""
    found = in_order(problems)
    if found:
        advice = dict.fromkeys(item for problem in found for item in problem.advice)
        raise ConfigError("\n".join(map(str, found)), advice=tuple(advice))

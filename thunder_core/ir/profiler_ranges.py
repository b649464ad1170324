"""Ranges of `torch.profiler.record_function` in a program: each op has those that it is in, with its source location.

So the ranges survive whatever passes do with the op, and a printed trace enters them around it. A range without ops is
not part of a trace. A fused region is in the ranges of all its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import torch

_MOST_NESTED: Final = 10  # Python allows 20 nested blocks, and modes take some
RECORD_FUNCTION: Final = "torch.profiler.record_function"
RECORD_FUNCTIONS: Final = f"{__name__}.record_functions"


@dataclass(frozen=True, slots=True)
class ProfilerRange:
    """One range of a program.

    Attributes:
        name, args: the arguments of `torch.profiler.record_function`.
        key: distinguishes ranges with the same name.
    """

    name: str
    args: str | None
    key: Hashable


@contextmanager
def record_functions(*ranges: tuple[str, str | None]) -> Iterator[None]:
    """The context of several ranges, each a pair of name and arguments, the outermost first."""
    with ExitStack() as stack:
        for name, args in ranges:
            stack.enter_context(torch.profiler.record_function(name, args))
        yield


def union(ranges: Iterable[Sequence[ProfilerRange]]) -> tuple[ProfilerRange, ...]:
    """The ranges of all these, each once, the outer ones first."""
    return tuple(dict.fromkeys(each for several in ranges for each in several))


class RangeBlocks:
    """The nested ``with`` statements by which a printed function enters ranges.

    Attributes:
        current: the ranges that are entered at this place.
    """

    def __init__(self) -> None:
        self.current: tuple[ProfilerRange, ...] = ()
        self._joined = False  # whether one statement enters all of them

    @property
    def indentation(self) -> str:
        """That of the lines inside of the statements, beyond the function's."""
        return "    " * (1 if self._joined else len(self.current))

    def enter(self, ranges: tuple[ProfilerRange, ...], literal: Callable[[object], str]) -> list[str]:
        """The lines that change `current` to ``ranges``, relative to the function's own lines.

        Args:
            literal: the Python of a string, of None, or of a tuple of these.
        """
        if self._joined or len(ranges) > _MOST_NESTED:
            self.current, self._joined = (), False
        if len(ranges) > _MOST_NESTED:
            self.current, self._joined = ranges, True
            return [f"with {RECORD_FUNCTIONS}({', '.join([literal((each.name, each.args)) for each in ranges])}):"]
        while self.current != ranges[: len(self.current)]:
            self.current = self.current[:-1]
        lines = []
        for each in ranges[len(self.current) :]:
            args = "" if each.args is None else f", {literal(each.args)}"
            lines.append(f"{self.indentation}with {RECORD_FUNCTION}({literal(each.name)}{args}):")
            self.current = (*self.current, each)
        return lines

"""The warm-up of a compiled function or module, after which its calls no longer compile."""

from __future__ import annotations

from typing import Any


class WarmUp:
    """Whether programs of a function or module may be compiled, if its option ``allow_recompiles`` is not true.

    A program is compiled at its first call. While this object is entered as a context, all programs are compiled for
    each call that needs it, in any thread. Once it has been left, none are, until it is entered again.
    """

    def __init__(self) -> None:
        self._entered: list[None] = []  # appending and removing are atomic
        self._ended = False

    def __enter__(self) -> None:
        self._entered.append(None)

    def __exit__(self, *error: Any) -> None:
        self._ended = True
        self._entered.pop()

    def allows(self, *, first: bool) -> bool:
        """Whether a program may be compiled.

        Args:
            first: whether it would be the first compilation of the program.
        """
        return bool(self._entered) or (first and not self._ended)

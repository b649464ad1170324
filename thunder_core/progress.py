"""Progress events of a compilation, for listeners that display them.

The compiler reports its stages. They are displayed only after a call of `show_with`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Display(Protocol):
    """Displays one compilation. Its methods are called in the compiling thread, and must not raise."""

    def update(self, stage: str, done: int, total: int | None) -> None:
        """Show the current stage, and that ``done`` of its ``total`` steps are done; None for a stage without steps."""

    def close(self) -> None:
        """Remove the display: the compilation ended."""


_create: Callable[[str], Display | None] | None = None
_stage: ContextVar[tuple[Display, str] | None] = ContextVar("stage", default=None)


def show_with(create: Callable[[str], Display | None] | None) -> None:
    """Display the following compilations of all threads, except those inside of another compilation.

    Args:
        create: returns the display for a program of this name, or None; None to display no compilation.
    """
    global _create
    _create = create


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """A context in which the program ``name`` is compiled."""
    display = None if _create is None or _stage.get() is not None else _create(name)
    if display is None:
        yield
        return
    token = _stage.set((display, ""))
    try:
        yield
    finally:
        _stage.reset(token)
        display.close()


def stage(name: str) -> None:
    """Report the start of a stage of the compilation in this thread."""
    current = _stage.get()
    if current is not None:
        _stage.set((current[0], name))
        current[0].update(name, 0, None)


def count(done: int, total: int) -> None:
    """Report that ``done`` of ``total`` steps of the current stage are done."""
    current = _stage.get()
    if current is not None:
        current[0].update(current[1], done, total)

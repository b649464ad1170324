"""What a compilation is doing, for whoever shows it.

The compiler says so here, always; nothing is imported and nothing shown before somebody asks with `show_with`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Display(Protocol):
    """Shows one compilation. Its methods are called in the thread that compiles, and must not raise."""

    def update(self, stage: str, done: int, total: int | None) -> None:
        """The stage is ``stage``; ``done`` of ``total`` steps of it are done, if it has steps."""

    def close(self) -> None:
        """The compilation ended."""


_make: Callable[[str], Display | None] | None = None
_stage: ContextVar[tuple[Display, str] | None] = ContextVar("stage", default=None)


def show_with(make: Callable[[str], Display | None] | None) -> None:
    """From now on, in all threads, ``make`` is called with the name of each program that is compiled.

    It returns a display, or None where that compilation is not shown. Of a compilation inside another one, the stages
    are not shown.
    """
    global _make
    _make = make


@contextmanager
def compiling(name: str) -> Iterator[None]:
    """The program ``name`` is compiled inside."""
    display = None if _make is None or _stage.get() is not None else _make(name)
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
    """The compilation of this thread came to another stage."""
    current = _stage.get()
    if current is not None:
        _stage.set((current[0], name))
        current[0].update(name, 0, None)


def count(done: int, total: int) -> None:
    """``done`` of ``total`` steps of the stage are done."""
    current = _stage.get()
    if current is not None:
        current[0].update(current[1], done, total)

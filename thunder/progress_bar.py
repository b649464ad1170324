"""A bar on the terminal while a program is compiled, if that takes long."""

from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any, Final

_DELAY: Final = 1.0  # in seconds; what is compiled sooner shows nothing


def wanted() -> bool:
    """Whether to show it: as ``THUNDER_PROGRESS`` says (``1`` or ``0``), otherwise on a terminal that a person sees."""
    said = os.environ.get("THUNDER_PROGRESS", "")
    if said:
        return said != "0"
    return not os.environ.get("CI") and os.environ.get("TERM") != "dumb" and _on_terminal()


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stream, or it is closed
        return False


def display(name: str) -> ProgressBar | None:
    """The bar of one compilation, or None where none is wanted or another one is shown."""
    return ProgressBar(name) if wanted() and _shown.acquire(blocking=False) else None


def _import_rich() -> None:
    """Before the program runs: rich draws a number from Python's generator when it is imported."""
    state = random.getstate()
    import rich.progress  # noqa: F401

    random.setstate(state)


_shown = threading.Lock()
"""Held by the one bar that there is: bars of two threads would overwrite each other."""


class ProgressBar:
    """One line on standard error, which goes away at the end.

    Args:
        name: of the program.
        delay: in seconds, until it appears.
    """

    def __init__(self, name: str, delay: float = _DELAY) -> None:
        _import_rich()
        self._name = name
        self._lock = threading.Lock()
        self._state: tuple[str, int, int | None] = ("", 0, None)
        self._bar: Any = None
        self._task: Any = None
        self._timer: threading.Timer | None = threading.Timer(delay, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def update(self, stage: str, done: int, total: int | None) -> None:
        """Show how far it is; if the bar has not appeared yet, it will start there."""
        with self._lock:
            self._state = (stage, done, total)
            self._draw()

    def close(self) -> None:
        """Remove it."""
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is None:
                return
            timer.cancel()
            if self._bar is not None:
                self._bar.stop()
        _shown.release()

    def _appear(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}"),
            TimeElapsedColumn(),
        )
        with self._lock:
            if self._timer is None:  # closed meanwhile
                return
            # What the program prints must not be redirected: it may be captured, or shown by a bar of its own.
            console = Console(stderr=True)
            self._bar = Progress(
                *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self._task = self._bar.add_task("", total=None, steps="")
            self._draw()
            self._bar.start()

    def _draw(self) -> None:
        if self._bar is None:
            return
        stage, done, total = self._state
        steps = "" if total is None else f"{min(done + 1, total)} of {total}"
        self._bar.update(
            self._task, description=f"compiling {self._name}: {stage}", completed=done, total=total, steps=steps
        )

"""A progress bar on the terminal during long compilations."""

from __future__ import annotations

import os
import random
import sys
import threading
from typing import Any, Final

from thunder_core.forking import renew_in_child

_DELAY: Final = 1.0  # in seconds; shorter compilations show no bar


def wanted() -> bool:
    """Whether to show it: by ``THUNDER_PROGRESS`` (``1`` or ``0``), else on an interactive terminal."""
    value = os.environ.get("THUNDER_PROGRESS", "")
    if value:
        return value != "0"
    return not os.environ.get("CI") and os.environ.get("TERM") != "dumb" and _on_terminal()


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stream, or it is closed
        return False


def display(name: str) -> ProgressBar | None:
    """The bar of one compilation; None if it is disabled, or another one is shown."""
    return ProgressBar(name) if wanted() and _shown.acquire(blocking=False) else None


def _import_rich() -> None:
    """Import Rich before the program runs: the import uses Python's random generator."""
    state = random.getstate()
    import rich.progress  # noqa: F401

    random.setstate(state)


_shown = threading.Lock()
renew_in_child(sys.modules[__name__], "_shown")
"""Held by the visible bar: bars of two threads would overwrite each other."""


class ProgressBar:
    """One line on standard error, which is erased at the end.

    Args:
        name: of the program.
    """

    def __init__(self, name: str) -> None:
        _import_rich()
        self._name = name
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._state: tuple[str, int, int | None] = ("", 0, None)
        self._bar: Any = None
        self._task: Any = None
        self._timer: threading.Timer | None = threading.Timer(_DELAY, self._appear)
        self._timer.daemon = True
        self._timer.start()

    def update(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress; a bar that is not visible yet starts there."""
        with self._lock:
            self._state = (stage, done, total)
            self._draw()

    def close(self) -> None:
        """Erase it."""
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
            # Output of the program must not be redirected: it may be captured, or belong to another bar.
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

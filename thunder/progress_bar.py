"""The progress of long compilations on standard error: a bar on a terminal, elsewhere a line for each stage."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from abc import ABC, abstractmethod
from typing import Any, Final

from thunder_core.forking import renew_in_child

_DELAY: Final = 1.0  # in seconds; shorter compilations show no bar
_DELAY_OF_LINES: Final = 2.0
_PAUSE: Final = 10.0  # in seconds, between lines about the steps of one stage
_requested = False


def request() -> None:
    """Show the progress in this process wherever standard error leads, unless ``THUNDER_PROGRESS=0``: for commands."""
    global _requested
    _requested = True


def wanted() -> bool:
    """Whether to show it: by ``THUNDER_PROGRESS`` (``1`` or ``0``), else after `request`, or on a terminal."""
    value = os.environ.get("THUNDER_PROGRESS", "")
    if value:
        return value != "0"
    return _requested or _on_interactive_terminal()


def _on_interactive_terminal() -> bool:
    return not os.environ.get("CI") and os.environ.get("TERM") != "dumb" and _on_terminal()


def _on_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is no stream, or it is closed
        return False


def display(name: str, doing: str = "compiling") -> ProgressBar | ProgressLines | None:
    """The progress of one compilation, or of something else; None if it is disabled, or another one is shown."""
    if not wanted() or not _shown.acquire(blocking=False):
        return None
    return (ProgressBar if _on_interactive_terminal() else ProgressLines)(f"{doing} {name}")


def _import_rich() -> None:
    """Import Rich before the program runs: the import uses Python's random generator."""
    state = random.getstate()
    import rich.progress  # noqa: F401

    random.setstate(state)


_shown = threading.Lock()
renew_in_child(sys.modules[__name__], "_shown")
"""Held by what is visible: bars of two threads would overwrite each other."""


class _Display(ABC):
    """What appears on standard error after a delay, unless it is closed before.

    Args:
        title: what is done: ``compiling Net``.
        delay: in seconds.
    """

    def __init__(self, title: str, delay: float) -> None:
        self._title = title
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")
        self._state: tuple[str, int, int | None] = ("", 0, None)
        self._timer: threading.Timer | None = threading.Timer(delay, self._begin)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """End it. Further calls do nothing."""
        with self._lock:
            timer, self._timer = self._timer, None
            if timer is None:
                return
            timer.cancel()
            self._end()
        _shown.release()

    def _begin(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._appear()

    @abstractmethod
    def update(self, stage: str, done: int, total: int | None) -> None:
        """Show that ``done`` of ``total`` steps of the stage are done; None if their number is not known."""

    @abstractmethod
    def _appear(self) -> None:
        """Show the state for the first time, with the lock held."""

    @abstractmethod
    def _end(self) -> None:
        """End what is visible, if anything is, with the lock held."""


class ProgressLines(_Display):
    """Lines on standard error: for the current stage after two seconds, then for each stage that begins, and the end.

    Args:
        title: what is done: ``compiling Net``.
    """

    def __init__(self, title: str) -> None:
        self._start = time.monotonic()
        self._printed: float | None = None  # when the last line was printed
        super().__init__(title, _DELAY_OF_LINES)

    def update(self, stage: str, done: int, total: int | None) -> None:
        """Print a line if a stage begins, or one takes long."""
        with self._lock:
            begins, self._state = stage != self._state[0], (stage, done, total)
            if self._printed is not None and (begins or time.monotonic() > self._printed + _PAUSE):
                self._appear()

    def _end(self) -> None:
        """Print the time that it took, if anything was printed."""
        if self._printed is not None:
            self._print("done")

    def _appear(self) -> None:
        stage, done, total = self._state
        self._print(stage or "begins" if total is None else f"{stage}, {min(done + 1, total)} of {total}")

    def _print(self, what: str) -> None:
        self._printed = time.monotonic()
        try:
            sys.stderr.write(f"{self._title}: {what} ({self._printed - self._start:.1f} s)\n")
            sys.stderr.flush()
        except (AttributeError, OSError, ValueError):  # nobody can read it, and a compilation must not fail by this
            self._printed = None


class ProgressBar(_Display):
    """One line on standard error, which is erased at the end.

    Args:
        title: what is done: ``compiling Net``.
    """

    def __init__(self, title: str) -> None:
        _import_rich()
        self._bar: Any = None
        self._task: Any = None
        super().__init__(title, _DELAY)

    def update(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress; a bar that is not visible yet starts there."""
        with self._lock:
            self._state = (stage, done, total)
            self._draw()

    def _end(self) -> None:
        """Erase it."""
        if self._bar is not None:
            self._bar.stop()

    def _appear(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[steps]}"),
            TimeElapsedColumn(),
        )
        # Output of the program must not be redirected: it may be captured, or belong to another bar.
        console = Console(stderr=True)
        self._bar = Progress(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)
        self._task = self._bar.add_task("", total=None, steps="")
        self._draw()
        self._bar.start()

    def _draw(self) -> None:
        if self._bar is None:
            return
        stage, done, total = self._state
        steps = "" if total is None else f"{min(done + 1, total)} of {total}"
        self._bar.update(self._task, description=f"{self._title}: {stage}", completed=done, total=total, steps=steps)

"""Import the objects that entry points and specifications name; locate the failure of an import."""

from __future__ import annotations

import importlib
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Final

from thunder_core import PACKAGES

FAILURES: Final = (Exception, SystemExit)
"""Exceptions that importing or calling a plugin may raise; some plugins exit when their library is absent."""


@contextmanager
def code_of_plugin() -> Iterator[None]:
    """A context in which exceptions of a plugin are `FAILURES`: an ImportError in place of each that is not.

    A KeyboardInterrupt is the plugin's unless the user interrupted the process meanwhile: then it is raised.
    """
    interrupts: list[int] = []
    handler, restore = _noting(interrupts)
    try:
        yield
    except FAILURES:
        raise
    except BaseException as error:
        if interrupts:
            raise
        raise _NotAnException(str(error)).with_traceback(error.__traceback__) from error
    finally:
        if handler is not None and signal.getsignal(signal.SIGINT) is handler:
            restore()


class _NotAnException(ImportError):
    """In place of its cause, which is not an `Exception`."""


def _noting(interrupts: list[int]) -> tuple[Any, Callable[[], None]]:
    """Have interrupts added to the list before they are handled. Returns the handler, and a function that undoes it.

    Other threads than the main one are never interrupted, and a process may have no handler in Python: None then.
    """
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(previous):
        return None, lambda: None

    def note(number: int, frame: FrameType | None) -> Any:
        interrupts.append(number)
        return previous(number, frame)

    try:
        signal.signal(signal.SIGINT, note)
    except ValueError:  # in a subinterpreter
        return None, lambda: None

    def restore() -> None:
        signal.signal(signal.SIGINT, previous)

    return note, restore


_TARGET: Final = re.compile(r"(?P<module>[^\W\d]\w*(\.[^\W\d]\w*)*)(:(?P<attribute>[^\W\d]\w*(\.[^\W\d]\w*)*))?")


_LONGEST: Final = 300
"""The number of characters of an error's text in a message. The error itself is the cause of the raised error."""


def is_target(text: Any) -> bool:
    """Whether this has the form ``package.module:attribute``."""
    return isinstance(text, str) and ":" in text and _TARGET.fullmatch(text) is not None


def imported(target: str) -> Any:
    """Import and return the object named by ``package.module:attribute`` or ``package.module``.

    Raises:
        ImportError: it has another form, or the module has no such attribute.
        Exception: whatever the module raises, or SystemExit.
        KeyboardInterrupt: the user interrupted the process.
    """
    # Entry points may have spaces around the colon, and extras after it.
    match = _TARGET.fullmatch(":".join(map(str.strip, target.partition("[")[0].split(":"))))
    if match is None:
        raise ImportError(f"{target!r} is not of the form package.module:attribute")
    with code_of_plugin():
        value: Any = importlib.import_module(match["module"])
        for part in match["attribute"].split(".") if match["attribute"] else ():
            if not hasattr(value, part):
                raise ImportError(f"{match['module']} has no {match['attribute']}")
            value = getattr(value, part)
    return value


def failure(error: BaseException, target: str) -> str:
    """Return an error of a plugin with its line: ``ZeroDivisionError: division by zero, in file.py:3``."""
    if isinstance(error, _NotAnException) and error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    what = f"{type(error).__qualname__}: {text if len(text) <= _LONGEST else text[:_LONGEST] + '...'}".removesuffix(
        ": "
    )
    place = _place(error, target.partition(":")[0].partition(".")[0])
    return f"{what}, in {place}" if place else what


def _place(error: BaseException, package: str) -> str:
    """The innermost line of the plugin's package; without one, the innermost at all."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = list(_frames(error.__traceback__))
    own = [place for name, place in frames if name.partition(".")[0] == package]
    importers = ("importlib", *PACKAGES)
    others = [place for name, place in frames if name.partition(".")[0] not in importers]
    return (own or others or [""])[-1]


def _frames(trace: TracebackType | None) -> list[tuple[str, str]]:
    """Return the module and the line of each frame."""
    frames = []
    while trace is not None:
        frame = trace.tb_frame
        frames.append((frame.f_globals.get("__name__", ""), f"{frame.f_code.co_filename}:{trace.tb_lineno}"))
        trace = trace.tb_next
    return frames

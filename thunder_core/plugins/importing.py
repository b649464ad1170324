"""Import the objects that entry points and specifications name; locate the failure of an import."""

from __future__ import annotations

import importlib
import re
from types import TracebackType
from typing import Any, Final

FAILURES: Final = (Exception, SystemExit)
"""Exceptions that importing or calling a plugin may raise; some plugins exit when their library is absent."""

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
        BaseException: whatever the module raises.
    """
    # Entry points may have spaces around the colon, and extras after it.
    match = _TARGET.fullmatch(":".join(map(str.strip, target.partition("[")[0].split(":"))))
    if match is None:
        raise ImportError(f"{target!r} is not of the form package.module:attribute")
    value: Any = importlib.import_module(match["module"])
    for part in match["attribute"].split(".") if match["attribute"] else ():
        if not hasattr(value, part):
            raise ImportError(f"{match['module']} has no {match['attribute']}")
        value = getattr(value, part)
    return value


def failure(error: BaseException, target: str) -> str:
    """Return an error of a plugin with its line: ``ZeroDivisionError: division by zero, in file.py:3``."""
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
    others = [place for name, place in frames if name.partition(".")[0] not in ("importlib", "thunder_core")]
    return (own or others or [""])[-1]


def _frames(trace: TracebackType | None) -> list[tuple[str, str]]:
    """Return the module and the line of each frame."""
    frames = []
    while trace is not None:
        frame = trace.tb_frame
        frames.append((frame.f_globals.get("__name__", ""), f"{frame.f_code.co_filename}:{trace.tb_lineno}"))
        trace = trace.tb_next
    return frames

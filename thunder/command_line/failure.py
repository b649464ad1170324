"""How ``thunder explain`` shows the error of a program."""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import thunder
import thunder_core

_COMMANDS: Final = str(Path(__file__).parent)
_CORE: Final = thunder_core.__path__[0]
_OWN: Final = (thunder.__path__[0], _CORE)
_RECORDING: Final = tuple([str(Path(_CORE, name)) for name in ("acquire", "guards", "symbols")])
_CALLING: Final = (
    *_OWN,
    str(Path("torch", "nn", "modules", "module.py")),
    str(Path("torch", "utils", "_contextlib.py")),
    contextlib.__file__,
    importlib.__path__[0],
    "<frozen importlib",
)
"""Files, or folders of them, that stand between the lines of any program and say nothing about it."""


def print_failure(error: BaseException) -> None:
    """Print an exception as Python does, without the frames that are not the program's.

    All of them are there where the program is not to blame: its lines were recorded, and then Thunder failed.
    """
    shown = traceback.TracebackException.from_exception(error)
    if not _is_ours([frame.filename for frame in shown.stack]):
        _shorten(shown)
    sys.stderr.write("".join(shown.format()))


def _is_ours(files: list[str]) -> bool:
    compiling = [file for file in files if file.startswith(_CORE)]
    if not compiling or any(file.startswith("<thunder ") for file in files):  # not compiling yet, or running already
        return False
    if files[-1].startswith(_OWN) and not files[-1].startswith((*_RECORDING, _COMMANDS)):
        return True
    return not any(file.startswith(_RECORDING) for file in compiling)


def _shorten(shown: traceback.TracebackException) -> None:
    shown.stack = traceback.StackSummary.from_list([frame for frame in shown.stack if not _is_between(frame.filename)])
    for other in _others(shown):
        _shorten(other)


def _is_between(file: str) -> bool:
    return any(file.startswith(place) or file.endswith(place) for place in _CALLING)


def _others(shown: traceback.TracebackException) -> Iterable[traceback.TracebackException]:
    return [*filter(None, (shown.__cause__, shown.__context__)), *(shown.exceptions or ())]

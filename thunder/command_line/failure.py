"""Format a program's error for ``thunder explain``."""

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
import thunder_frontend

_COMMANDS: Final = str(Path(__file__).parent)
_FRONT_END: Final = thunder_frontend.__path__[0]
_COMPILER: Final = (thunder_core.__path__[0], _FRONT_END)
_THUNDER: Final = (thunder.__path__[0], *_COMPILER)
_RECORDING: Final = (_FRONT_END, str(Path(thunder_core.__path__[0], "symbols")))
_CALLING: Final = (
    *_THUNDER,
    str(Path("torch", "nn", "modules", "module.py")),
    str(Path("torch", "utils", "_contextlib.py")),
    contextlib.__file__,
    importlib.__path__[0],
    "<frozen importlib",
)
"""Files and folders whose frames are between those of the program in any traceback."""


def print_failure(error: BaseException) -> None:
    """Print an exception as Python does, without the frames of Thunder and PyTorch between those of the program.

    If Thunder failed after the program was recorded, all frames are printed.
    """
    shown = traceback.TracebackException.from_exception(error)
    if not _is_failure_of_thunder([frame.filename for frame in shown.stack]):
        _shorten(shown)
    sys.stderr.write("".join(shown.format()))


def _is_failure_of_thunder(files: list[str]) -> bool:
    compiling = [file for file in files if file.startswith(_COMPILER)]
    if not compiling or any(file.startswith("<thunder ") for file in files):  # not compiling yet, or running already
        return False
    if files[-1].startswith(_THUNDER) and not files[-1].startswith((*_RECORDING, _COMMANDS)):
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

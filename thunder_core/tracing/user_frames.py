"""Find the user's line that a torch call comes from."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from types import CodeType, FrameType
from typing import Any, TypeVar

import torch

import thunder_core
from thunder_core.guards.code_kinds import is_of_thunder
from thunder_core.ir.location import SourceLocation

_CORE = os.path.dirname(os.path.abspath(thunder_core.__file__))
_FRONT = os.path.join(os.path.dirname(_CORE), "thunder")  # installed together with the core
_INTERNAL = tuple(folder + os.sep for folder in (os.path.dirname(os.path.abspath(torch.__file__)), _CORE, _FRONT))
# The commands call programs as a user's script does. Lines of programs that have no line of the user's are at theirs,
# which reports leave out.
_COMMANDS = os.path.join(_FRONT, "command_line") + os.sep
_CONTEXTLIB = contextlib.__file__
# By file: code objects of different files are equal if all but the file is.
_is_internal: dict[str, bool] = {}
_packages: set[str] = set()
_locations: dict[tuple[str, CodeType, int], SourceLocation] = {}
_LIMIT = 100_000  # locations remembered; programs that generate code endlessly must not leak
_generated: dict[str, Mapping[int, SourceLocation]] = {}


_calling: set[CodeType] = set()
_Function = TypeVar("_Function", bound=Callable[..., Any])


def calls_program(function: _Function) -> _Function:
    """Mark a function that calls the user's program, or a part of it: what it raises by itself is an error of that."""
    _calling.add(function.__code__)
    return function


def is_calling(code: CodeType) -> bool:
    """Whether the function of this code was marked with `calls_program`."""
    return code in _calling


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to PyTorch or to Thunder."""
    return is_internal_file(code.co_filename)


def add_internal_package(folder: str) -> None:
    """Count the files of a plugin's package as Thunder's: lines that they record are at the user's line."""
    _packages.add(os.path.abspath(folder) + os.sep)
    _is_internal.clear()


def is_internal_file(filename: str) -> bool:
    """Whether a file, named as code objects and tracebacks do, belongs to PyTorch, to Thunder or to a plugin."""
    known = _is_internal.get(filename)
    if known is None:
        if len(_is_internal) > _LIMIT:
            _is_internal.clear()
        internal = filename.startswith((*_INTERNAL, *_packages, "<frozen", "<thunder"))
        known = _is_internal[filename] = internal and not filename.startswith(_COMMANDS)
    return known


def set_generated_lines(filename: str, locations: Mapping[int, SourceLocation]) -> None:
    """Say which of the user's lines the lines of generated code stand for; `forget_generated_lines` ends that.

    Args:
        filename: of the code, no other code's.
        locations: by the number of the generated line. Lines that are not there stand for themselves.
    """
    _generated[filename] = locations


def forget_generated_lines(filename: str) -> None:
    """The code of this name is gone."""
    _generated.pop(filename, None)


def library_callers() -> frozenset[str]:
    """Names of PyTorch's and Thunder's modules that run between the user's line and here."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_internal(frame.f_code):
        names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return frozenset(names)


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the innermost line that is the user's; where PyTorch alone called Thunder, at PyTorch's.

    As `warnings.warn`, but the line does not depend on how many of Thunder's and PyTorch's frames lie between.
    """
    frame: FrameType | None = sys._getframe(1)
    outside: FrameType | None = None
    while frame is not None and is_internal(frame.f_code):
        if outside is None and not (is_of_thunder(frame.f_code) or frame.f_code.co_filename.startswith("<")):
            outside = frame
        frame = frame.f_back
    frame = frame or outside or sys._getframe(1)
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def user_location() -> SourceLocation | None:
    """The line of the innermost frame that is the user's; None if there is none.

    Frames of `contextlib` are not: the end of a ``with`` statement passes through them.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (is_internal(frame.f_code) or frame.f_code.co_filename == _CONTEXTLIB):
        frame = frame.f_back
    return None if frame is None else _location(frame.f_code, frame.f_lineno)


def raising_location(error: BaseException) -> SourceLocation | None:
    """The innermost of the user's lines that an exception passed through; None if there is none."""
    found, traceback = None, error.__traceback__
    while traceback is not None:
        if not is_internal(traceback.tb_frame.f_code):
            found = _location(traceback.tb_frame.f_code, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _location(code: CodeType, line: int) -> SourceLocation:
    key = (code.co_filename, code, line)
    location = _locations.get(key)
    if location is None:
        if len(_locations) > _LIMIT:
            _locations.clear()
        location = _generated.get(code.co_filename, {}).get(line)
        if location is None:
            location = SourceLocation(code.co_filename, line, code.co_qualname)
        _locations[key] = location
    return location


# Debuggers show the tensors of a program that they stop in; what they show never reaches the program.
_DEBUGGERS = frozenset({"pdb", "bdb", "pydevd", "_pydevd_bundle", "debugpy", "ipdb"})


def called_by_nested_tensors() -> bool:
    """Whether the call of a torch function comes from PyTorch's jagged tensors themselves."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("thunder_core."):
        frame = frame.f_back
    return frame is not None and str(frame.f_globals.get("__name__")).startswith("torch.nested.")


def asked_by_debugger() -> bool:
    """Whether a debugger runs between the user's program and here."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name not in ("_run", "_attempt"):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _DEBUGGERS:
            return True
        frame = frame.f_back
    return False

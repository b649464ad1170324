"""Find the user's line that a torch call comes from."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from traceback import walk_tb
from types import CodeType, FrameType

import torch

import thunder_core
from thunder_core.guards.code_kinds import CodeKind, is_calling, is_of_thunder, kind_of
from thunder_core.ir.location import SourceLocation

_CORE = os.path.dirname(os.path.abspath(thunder_core.__file__))
_FRONT = os.path.join(os.path.dirname(_CORE), "thunder")  # installed together with the core
_INTERNAL = tuple(folder + os.sep for folder in (os.path.dirname(os.path.abspath(torch.__file__)), _CORE, _FRONT))
# The commands call programs like a user's script. Ops without a user line are located at a command's line, which
# reports leave out.
_COMMANDS = os.path.join(_FRONT, "command_line") + os.sep
# By file: code objects of different files are equal if all but the file is.
_is_internal: dict[str, bool] = {}
_is_of_user: dict[str, bool] = {}
_packages: set[str] = set()
_locations: dict[tuple[int, int], tuple[CodeType, SourceLocation]] = {}  # by id of the code, which the entry holds
_LIMIT = 100_000  # locations remembered; programs that generate code endlessly must not leak
_generated: dict[str, Mapping[int, SourceLocation]] = {}


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to PyTorch or to Thunder."""
    return is_internal_file(code.co_filename)


def add_internal_package(folder: str) -> None:
    """Treat the files of a plugin's package as internal, so that ops they record are located at the user's line."""
    _packages.add(os.path.abspath(folder) + os.sep)
    _is_internal.clear()
    _is_of_user.clear()


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
    """Map lines of generated code to the user's lines, until `forget_generated_lines`.

    Args:
        filename: the file name of the code, which must be unique.
        locations: the user's location by generated line number. Other lines are not mapped.
    """
    _generated[filename] = locations


def forget_generated_lines(filename: str) -> None:
    """Remove the mapping of the generated code with this file name."""
    _generated.pop(filename, None)


def library_callers() -> frozenset[str]:
    """Names of the PyTorch and Thunder modules with frames between the user's line and the caller."""
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
    """The line of the innermost frame that is the user's; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # called for each op, with several frames of Thunder and PyTorch above the user's
        code = frame.f_code
        of_user = _is_of_user.get(code.co_filename)
        if _is_users(code) if of_user is None else of_user:
            return _location(code, frame.f_lineno)
        frame = frame.f_back
    return None


def raising_location(error: BaseException) -> SourceLocation | None:
    """The innermost of the user's lines that an exception passed through; None if there is none."""
    found = None
    for frame, line in walk_tb(error.__traceback__):
        if _is_users(frame.f_code):
            found = _location(frame.f_code, line)
    return found


def _is_users(code: CodeType) -> bool:
    """Whether code is neither of PyTorch and Thunder nor of the standard library, as `copy` and `contextlib`."""
    known = _is_of_user.get(code.co_filename)
    if known is None:
        if len(_is_of_user) > _LIMIT:
            _is_of_user.clear()
        known = not is_internal(code) and kind_of(code) is not CodeKind.LIBRARY
        _is_of_user[code.co_filename] = known
    return known


def _location(code: CodeType, line: int) -> SourceLocation:
    key = (id(code), line)
    known = _locations.get(key)
    if known is None:
        if len(_locations) > _LIMIT:
            _locations.clear()
        location = _generated.get(code.co_filename, {}).get(line)
        if location is None:
            location = SourceLocation(code.co_filename, line, code.co_qualname)
        known = _locations[key] = (code, location)
    return known[1]


# Debuggers print tensors of the program that they stop in; these calls are not part of the program. `signal` formats a
# handler, for `asyncio.run` one with the result of the task, for a message that it discards.
_READERS = frozenset({"pdb", "bdb", "pydevd", "_pydevd_bundle", "debugpy", "ipdb", "signal"})


def calling_frame() -> FrameType | None:
    """The innermost frame outside Thunder."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_of_thunder(frame.f_code):
        frame = frame.f_back
    return frame


def calling_module() -> str:
    """The name of the module whose code calls Thunder; empty if there is none."""
    frame = calling_frame()
    return "" if frame is None else str(frame.f_globals.get("__name__", ""))


def called_outside_of_program() -> bool:
    """Whether the program does not read the result of the call: a debugger does, or it is part of a discarded message.

    Their frames are between the caller and the function of Thunder that calls the program.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_calling(frame.f_code):
        if str(frame.f_globals.get("__name__")).partition(".")[0] in _READERS:
            return True
        frame = frame.f_back
    return False

"""Find the user's line that a torch call comes from."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import torch

import thunder_core
from thunder_core.ir.location import SourceLocation

_INTERNAL = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (torch.__file__, thunder_core.__file__))
# By file: code objects of different files are equal if all but the file is.
_is_internal: dict[str, bool] = {}
_locations: dict[tuple[str, CodeType, int], SourceLocation] = {}
_LIMIT = 100_000  # locations remembered; programs that generate code endlessly must not leak


def is_internal(code: CodeType) -> bool:
    """Whether a code object belongs to PyTorch or to Thunder."""
    filename = code.co_filename
    known = _is_internal.get(filename)
    if known is None:
        if len(_is_internal) > _LIMIT:
            _is_internal.clear()
        known = _is_internal[filename] = filename.startswith((*_INTERNAL, "<frozen", "<thunder"))
    return known


def library_callers(depth: int = 2) -> frozenset[str]:
    """Names of PyTorch's and Thunder's modules that run between the user's line and here, ``depth`` levels up."""
    names: list[str] = []
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and is_internal(frame.f_code):
        names.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return frozenset(names)


def user_location(depth: int = 2) -> SourceLocation | None:
    """The innermost frame, ``depth`` levels up or more, that is the user's; None if there is none."""
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and is_internal(frame.f_code):
        frame = frame.f_back
    if frame is None:
        return None
    key = (frame.f_code.co_filename, frame.f_code, frame.f_lineno)
    location = _locations.get(key)
    if location is None:
        if len(_locations) > _LIMIT:
            _locations.clear()
        code = frame.f_code
        location = _locations[key] = SourceLocation(code.co_filename, frame.f_lineno, code.co_qualname)
    return location

"""Tracebacks of exceptions without the frames of Thunder.

`folded` replaces only the traceback of an exception: its type, arguments, notes, cause and context stay as they are,
and so do the frames of the user's code, which debuggers show. Code that catches an exception calls it like this::

    except Exception as error:
        error.__traceback__ = folded(error)
        raise  # adds no frame
"""

from __future__ import annotations

import ast
import contextlib
import os
from collections.abc import Iterator
from contextlib import suppress
from traceback import walk_tb
from types import CodeType, FrameType, TracebackType
from typing import Final

import torch

from thunder_core.errors import ThunderError
from thunder_core.ir.location import SourceLocation
from thunder_core.ir.program import annotate_exception, location_of
from thunder_core.tracing.frames import CodeKind, is_calling, is_internal, is_of_thunder, kind_of

_VARIABLE: Final = "THUNDER_TRACEBACK"
_PYTORCH: Final = f"{os.path.dirname(torch.__file__)}{os.sep}"


def folded(error: BaseException) -> TracebackType | None:
    """The traceback of a caught ``error`` without Thunder's frames, and what they called of PyTorch.

    Lines of generated programs become the user's lines that they were recorded from. The tracebacks of its causes and
    contexts are folded as well. The full traceback stays with ``THUNDER_TRACEBACK=full`` in the environment, and for a
    defect of Thunder: an exception other than a `ThunderError` that neither the user's code nor a call for it raised.
    """
    annotate_exception(error)
    if os.environ.get(_VARIABLE) == "full" or is_defect(error):
        return error.__traceback__
    result = _fold(error.__traceback__)
    seen = {id(error)}
    others = [error.__cause__, error.__context__]
    while others:
        other = others.pop()
        if other is not None and id(other) not in seen:
            seen.add(id(other))
            other.__traceback__ = _fold(other.__traceback__)
            others += [other.__cause__, other.__context__]
    return result


def is_defect(error: BaseException) -> bool:
    """Whether an exception is due to a defect of Thunder."""
    if isinstance(error, ThunderError):
        return False
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__) if not _is_of_torch(frame)]
    if not codes or not is_of_thunder(codes[-1]):
        return False
    users = [index for index, code in enumerate(codes) if not is_of_thunder(code)]
    if users:  # any call for the user's line, down to the kernels for fake tensors
        return not any(map(is_calling, codes[users[-1] + 1 :]))
    return not is_calling(codes[-1])


def _is_of_torch(frame: FrameType) -> bool:
    return is_internal(frame.f_code) and not is_of_thunder(frame.f_code) and not _is_generated(frame.f_code)


def _is_generated(code: CodeType) -> bool:
    return code.co_filename.startswith("<thunder")


def _fold(traceback: TracebackType | None) -> TracebackType | None:
    frames: list[tuple[FrameType, int, int]] = []
    inside = False  # whether the frame was called by Thunder, with no user's frame in between
    for entry in _entries(traceback):
        frame = entry.tb_frame
        if _is_generated(frame.f_code):
            location = location_of(frame.f_code.co_filename, entry.tb_lineno)
            if location is not None:
                frames.append(_at_users_line(location, frame))
            inside = True
        elif is_of_thunder(frame.f_code):
            inside = True
        elif not (inside and is_internal(frame.f_code)):
            inside = False
            frames.append((frame, entry.tb_lasti, entry.tb_lineno))
    result: TracebackType | None = None
    for frame, instruction, line in reversed(frames):
        result = TracebackType(result, frame, instruction, line)
    return result


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _at_users_line(location: SourceLocation, generated: FrameType) -> tuple[FrameType, int, int]:
    """A frame at the user's line, with the variables of the generated program that runs it."""
    raising = ast.parse("raise error")
    start, end = location.columns
    for node in ast.walk(raising):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = max(location.line, 1)
            node.col_offset, node.end_col_offset = start, end
    code = compile(raising, location.filename, "exec", dont_inherit=True)
    code = code.replace(co_name=location.function.rpartition(".")[2], co_qualname=location.function)
    variables = {"__name__": "<recorded>", **generated.f_locals, "error": _Placed()}
    try:
        exec(code, variables)
    except _Placed as placed:
        entry = placed.__traceback__
        assert entry is not None
        assert entry.tb_next is not None
        entry = entry.tb_next
        del variables["error"]
        return entry.tb_frame, entry.tb_lasti, entry.tb_lineno
    raise AssertionError("the code raises")


class _Placed(Exception):
    """Raised to get a frame."""


def free_frames(error: BaseException) -> None:
    """Delete the local variables of frames of PyTorch and `contextlib` that an exception, or its cause, has ended.

    Guards in these frames, and generators that were suspended in a context, restore modes when they are freed.
    """
    errors, seen = [error], set()
    while errors:
        one = errors.pop()
        seen.add(id(one))
        for frame, _ in walk_tb(one.__traceback__):
            if _holds_modes(frame.f_code):
                with suppress(RuntimeError):  # a generator that is suspended, which Python 3.13 does not clear
                    frame.clear()
        errors += [other for other in (one.__cause__, one.__context__) if other is not None and id(other) not in seen]


def _holds_modes(code: CodeType) -> bool:
    """Whether a frame of this code is freed. Those of modules stay: they show which module the exception ended."""
    if code.co_filename == contextlib.__file__:
        return True
    return code.co_filename.startswith(_PYTORCH) and kind_of(code) is CodeKind.IGNORED


def note(error: BaseException, reason: str) -> None:
    """Add a note to an exception: writes of the program before it may be lost, except in-place writes."""
    error.add_note(f"Thunder: what the program wrote before this exception is not all written, as {reason}.")

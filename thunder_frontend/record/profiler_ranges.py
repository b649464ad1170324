"""Ranges of `torch.profiler.record_function`: ops that are recorded inside of one are in it (`ProfilerRange`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

from thunder_core.ir.profiler_ranges import ProfilerRange
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.record.recorder import Recorder

_numbers: Final = itertools.count()
_NOTE: Final = "open ranges of the profiler"


def _enter(
    recorder: Recorder, func: Callable[..., Any], /, name: str, args: str | None = None, *rest: Any, **kwargs: Any
) -> Any:
    """Enter a range; the recording itself is in it, too."""
    handle = func(name, args, *rest, **kwargs)
    recorder.notes.setdefault(_NOTE, []).append((handle, ProfilerRange(name, args, next(_numbers))))
    _update(recorder)
    return handle


def _leave(recorder: Recorder, func: Callable[..., Any], /, handle: Any, *args: Any, **kwargs: Any) -> Any:
    recorder.notes[_NOTE] = [each for each in recorder.notes.get(_NOTE, ()) if each[0] is not handle]
    _update(recorder)
    return func(handle, *args, **kwargs)


def _update(recorder: Recorder) -> None:
    this_thread.ranges = tuple([each for _, each in recorder.notes[_NOTE]])


@contextmanager
def of_program() -> Iterator[None]:
    """A context in which a program is recorded: at its start it is in no range, and in no submodule."""
    outer = this_thread.ranges, this_thread.module
    this_thread.ranges, this_thread.module = (), ""
    try:
        yield
    finally:
        this_thread.ranges, this_thread.module = outer


def _overloads(*names: str) -> Iterator[Any]:
    """The operators of these names, and their overloads."""
    for name in names:
        operator = getattr(torch.ops.profiler, name)
        yield operator
        yield from [getattr(operator, overload) for overload in operator.overloads()]


HANDLERS: Final[dict[Any, Callable[..., Any]]] = {
    **dict.fromkeys(_overloads("_record_function_enter_new", "_record_function_enter"), _enter),
    **dict.fromkeys(_overloads("_record_function_exit"), _leave),
}
"""The handlers of the operators that `torch.profiler.record_function` calls."""

"""Exceptions that a handler of a signal raises while Thunder compiles: they are for the caller, as in eager PyTorch."""

from __future__ import annotations

import signal
from traceback import walk_tb
from types import CodeType, FunctionType, TracebackType

from thunder_core.errors import LoweringError
from thunder_core.tracing.frames import CodeKind, kind_of


def of_signal_handler(error: BaseException) -> BaseException | None:
    """The exception of a signal handler that ``error`` is, or that has led to it; None if there is none.

    One that the program has caught has not: its traceback begins at the frame that has caught it.
    """
    codes = _codes_of_handlers()
    seen, pending = set[int](), [error] if codes else []
    while pending:
        one = pending.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if one is not error and _is_of_program(one.__traceback__):
            continue
        if any(frame.f_code in codes for frame, _ in walk_tb(one.__traceback__)):
            return one
        pending += [other for other in (one.__cause__, one.__context__) if other is not None]
    return None


def lowering_error(error: Exception, problem: str) -> LoweringError:
    """The error for an op that cannot be lowered because of an exception.

    Raises:
        Exception: ``error`` itself, if the handler of a signal has raised it or led to it.
    """
    if of_signal_handler(error) is not None:
        raise error
    return LoweringError(problem)


def _is_of_program(traceback: TracebackType | None) -> bool:
    return traceback is not None and kind_of(traceback.tb_frame.f_code) is CodeKind.USER


def _codes_of_handlers() -> set[CodeType]:
    """The code of the handlers that are functions of Python."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    callables = [getattr(handler, "__func__", handler) for handler in handlers if callable(handler)]
    functions = [one if type(one) is FunctionType else type(one).__call__ for one in callables]
    return {function.__code__ for function in functions if type(function) is FunctionType}

"""What the program prints and logs: lines of its trace, since tensors have values only when it runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import torch

from thunder_core.acquire.arguments import Call
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.subclasses import is_computed, refuse_classes
from thunder_core.errors import UnsupportedError
from thunder_core.guards.code_kinds import CodeKind, kind_of
from thunder_core.ir.effects import Effects
from thunder_core.ir.symbol import Symbol
from thunder_core.ir.tree import iterate_leaves
from thunder_core.symbols.printing import LOG_VALUES, PRINT_VALUES
from thunder_core.tracing.user_frames import user_location

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Methods of loggers, with the level that they log at."""

_SET_PRINTOPTIONS: Final = Symbol("torch.set_printoptions", torch.set_printoptions)
_CALLER: Final = 3  # the frame of who calls a method of a logger, seen from its handler
_LITERAL: Final = (type(None), bool, int, float, complex, str)


def print_values(recorder: Recorder, original: Callable[..., None], /, *values: Any, **options: Any) -> None:
    """The interception of ``print``: it prints at each call of the compiled program, in its place among other effects.

    A call that writes to another file than the standard streams is a line only if it prints tensors.

    Raises:
        UnsupportedError: it prints tensors to another file, or one of a subclass that the program computes.
    """
    file = options.pop("file", None)
    standard = file is None or file is sys.stdout or file is sys.stderr
    tensors = any(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves(values))
    if not standard:
        if not tensors:
            original(*values, file=file, **options)
            return
        raise UnsupportedError(
            "print of a tensor of the program to a file",
            location=user_location(),
            advice=("print it to sys.stdout or sys.stderr", "return the tensor and write it outside"),
        )
    if file is sys.stderr and file is not None:
        options["to_stderr"] = True
    _record(recorder, PRINT_VALUES, tuple(map(_printable, values)), options)


def log_at(
    level: int,
    recorder: Recorder | None,
    original: Callable[..., None],
    logger: logging.Logger,
    /,
    msg: Any,
    *args: Any,
    **options: Any,
) -> None:
    """The interception of a method of loggers that logs at a level: what has tensors is a line."""
    if recorder is not None and _is_of_program(sys._getframe(_CALLER), msg, args):
        _log_values(recorder, logger, level, msg, args, options)
    else:
        options["stacklevel"] = options.get("stacklevel", 1) + _CALLER
        original(logger, msg, *args, **options)


def log(
    recorder: Recorder | None,
    original: Callable[..., None],
    logger: logging.Logger,
    /,
    level: int,
    msg: Any,
    *args: Any,
    **options: Any,
) -> None:
    """The interception of the method that takes the level, likewise."""
    if recorder is not None and _is_of_program(sys._getframe(_CALLER), msg, args):
        _log_values(recorder, logger, level, msg, args, options)
    else:
        options["stacklevel"] = options.get("stacklevel", 1) + _CALLER
        original(logger, level, msg, *args, **options)


def _is_of_program(caller: FrameType, message: Any, args: tuple[Any, ...]) -> bool:
    """Whether a call logs tensors, and is not one of those by which PyTorch logs what it does."""
    if kind_of(caller.f_code) is CodeKind.IGNORED:
        return False
    return any(isinstance(leaf, torch.Tensor) for leaf in iterate_leaves((message, args)))


def _log_values(
    recorder: Recorder, logger: logging.Logger, level: int, message: Any, args: tuple[Any, ...], options: Any
) -> None:
    """Record a call of a logger's method with tensors: it logs at each call of the compiled program.

    Raises:
        UnsupportedError: the logger has no name, the call has further options, or a tensor that the program computes is
            of a subclass.
    """
    if options or logging.getLogger(logger.name) is not logger:
        raise UnsupportedError(
            "logging of a tensor of the program with " + (", ".join(options) or "a logger that has no name"),
            location=user_location(),
            advice=("log it by logging.getLogger(name).info('%s', tensor)", "return the tensor and log it outside"),
        )
    location = user_location()
    place = (
        ("", 0, "") if location is None else (location.filename, location.line, location.function.rpartition(".")[2])
    )
    _record(recorder, LOG_VALUES, (logger.name, level, place, message, *args), {})


def set_printoptions(recorder: Recorder, original: Callable[..., None], /, *args: Any, **options: Any) -> None:
    """The interception of `torch.set_printoptions`: a line in its place among what is printed."""
    _record(recorder, _SET_PRINTOPTIONS, args, options)


def _record(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    refuse_classes((args, kwargs), "a tensor to be printed", is_computed)
    call = Call(recorder.inputs, args, kwargs)
    recorder.trace.write(symbol, call.args, call.kwargs, effects=Effects(external=True))


def _printable(value: Any) -> Any:
    """A value as the argument of a line: objects without tensors are their texts of now, which guards are about."""
    leaves = list(iterate_leaves(value))
    if any(isinstance(leaf, torch.Tensor) for leaf in leaves) or all(type(leaf) in _LITERAL for leaf in leaves):
        return value
    return str(value)

"""Prints, logs and warnings of the program: ops of its trace, so that each run issues them with its own values.

Code in a ``functools.lru_cache``, and warnings under filters that the program sets, run once in eager and are not ops.
While the recorder runs the user's code, that of an autograd.Function on fake tensors for example, nothing is printed,
as that code runs again.
"""

from __future__ import annotations

import functools
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from inspect import getattr_static
from types import CodeType, FrameType
from typing import Any, Final

import torch

from thunder_core.checks.stored_attributes import namespace_of
from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import Effects
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.tree import iterate_leaves
from thunder_core.pytorch_internals import peek_interpreter_stack
from thunder_core.symbols.printing import LOG_VALUES, PRINT_VALUES, WARN
from thunder_core.tracing.frames import CodeKind, calls_program, is_of_thunder, kind_of, user_location
from thunder_frontend.observe.hidden_state import caller_of_logging
from thunder_frontend.observe.observer import Observer
from thunder_frontend.record import formatted_texts
from thunder_frontend.record.arguments import CallArguments
from thunder_frontend.record.recorder import Recorder
from thunder_frontend.record.subclasses import is_computed, refuse_classes
from thunder_frontend.record.traced_number import TracedNumber
from thunder_frontend.record.traced_size import TracedSize

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}
"""Methods of loggers, with the level that they log at."""

_SET_PRINTOPTIONS: Final = Symbol("torch.set_printoptions", torch.set_printoptions, tags=frozenset({Tag.REPORT}))
_CALLER: Final = 3  # depth of the frame that calls a method of a logger, from its handler
_CALLER_OF_BUILTIN: Final = 2  # depth of the frame that calls a function of C
_LITERAL: Final = frozenset({type(None), bool, int, float, complex, str})


@calls_program
def print_values(recorder: Recorder, original: Callable[..., None], /, *values: Any, **options: Any) -> None:
    """The interception of ``print``: it prints at each call of the compiled program, in its place among other effects.

    A call that writes to another file than the standard streams is an op only if it prints tensors.

    Raises:
        UnsupportedError: it prints tensors to another file, or one of a subclass that the program computes.
    """
    formatted_texts.refuse(options.values())
    if recorder.suspension.active:
        formatted_texts.refuse(values)
        if kind_of(sys._getframe(_CALLER_OF_BUILTIN).f_code) is not CodeKind.USER:
            original(*values, **options)
        return
    file = options.pop("file", None)
    trace = recorder.trace
    if file is None and sys.stdout is not trace.stdout:  # the program has redirected it
        file = sys.stdout
    standard = file is None or file is trace.stdout or file is trace.stderr
    tensors = _has_tensors(values)
    if not standard or peek_interpreter_stack() is not None:
        formatted_texts.refuse(values)
    if tensors and peek_interpreter_stack() is not None:
        original(*values, file=file, **options)  # inside a transformation of torch.func, the repr of a tensor raises
        return
    if not standard:
        original(*map(str, values), file=file, **options)  # the text of a tensor is a value that the program reads
        return
    original(file=io.StringIO(), **options)  # raises where the op would
    if file is trace.stderr and file is not None:
        options["to_stderr"] = True
    texts = tuple([_printable(_shape_text(recorder, value)) for value in values])
    values, numbers = formatted_texts.template(recorder, texts)
    if numbers:
        options["numbers"] = numbers
    _record(recorder, PRINT_VALUES, values, options)


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
    """The interception of `logging.Logger.log`, which takes the level."""
    if recorder is None or not _log(recorder, logger, level, msg, args, options):
        options["stacklevel"] = options.get("stacklevel", 1) + _CALLER
        original(logger, level, msg, *args, **options)


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
    """The interception of a method of loggers that logs at a fixed level."""
    if recorder is not None and recorder.suspension.active and not logger.isEnabledFor(level):
        return  # PyTorch calls loggers thousands of times as it computes with symbolic sizes
    if recorder is None or not _log(recorder, logger, level, msg, args, options):
        options["stacklevel"] = options.get("stacklevel", 1) + _CALLER
        original(logger, msg, *args, **options)


def _log(
    recorder: Recorder, logger: logging.Logger, level: int, message: Any, args: tuple[Any, ...], options: Any
) -> bool:
    """Record a call of a logger's method, if it has to become an op."""
    caller = caller_of_logging(sys._getframe(1))
    texts = formatted_texts.has_placeholders((message, *args, *options.values()))
    if caller is None or not _is_logged_by_line(caller, logger, level, (message, args), options):
        if texts and logger.isEnabledFor(level):
            formatted_texts.refuse((message, *args, *options.values()))
        return False
    formatted_texts.refuse((*args, *options.values()))
    if not recorder.suspension.active:
        _log_values(recorder, caller, logger, level, message, args, options)
    return True


def _is_logged_by_line(
    caller: FrameType, logger: logging.Logger, level: int, values: tuple[Any, ...], options: dict[str, Any]
) -> bool:
    """Whether a call comes from the program, and logs tensors or at a level that is enabled for the logger.

    A level that is not enabled is guarded (`thunder_frontend.observe.hidden_state`).
    """
    if kind_of(caller.f_code) is not CodeKind.USER:
        return False
    if _has_tensors(values):
        return True
    return logger.isEnabledFor(level) and not options and _is_known(logger) and not _runs_once(caller)


def _is_known(logger: logging.Logger) -> bool:
    return logging.getLogger(logger.name) is logger


def _log_values(
    recorder: Recorder,
    caller: FrameType,
    logger: logging.Logger,
    level: int,
    message: Any,
    args: tuple[Any, ...],
    options: Any,
) -> None:
    """Record a call of a logger's method, so that each run logs.

    Raises:
        UnsupportedError: the logger has no name, the call has further options, or logs a computed tensor of a subclass.
    """
    if options or not _is_known(logger):
        raise UnsupportedError(
            "logging of a tensor of the program with " + (", ".join(options) or "a logger that has no name"),
            location=user_location(),
            advice=("log it by logging.getLogger(name).info('%s', tensor)", "return the tensor and log it outside"),
        )
    if not (_has_tensors((message, args)) or _is_literal((message, args))):  # the texts of objects are constants
        record = logger.makeRecord(logger.name, level, "", 0, message, args, None)
        message, args = record.getMessage(), ()
    place = (caller.f_code.co_filename, caller.f_lineno, caller.f_code.co_name)
    (message,), numbers = formatted_texts.template(recorder, (message,))
    options = {"numbers": numbers} if numbers else {}
    _record(recorder, LOG_VALUES, (logger.name, level, place, message, *args), options)


@calls_program
def warn(
    recorder: Recorder | None,
    original: Callable[..., None],
    /,
    message: str | Warning,
    category: type[Warning] | None = None,
    stacklevel: int = 1,
    source: Any = None,
    **options: Any,
) -> None:
    """The interception of ``warnings.warn``: a warning from the program's own code becomes an op."""
    caller = sys._getframe(_CALLER_OF_BUILTIN)
    if (
        recorder is None
        or kind_of(caller.f_code) is not CodeKind.USER
        or options
        or source is not None
        or recorder.trace.has_changed_warning_filters()
        or not (category is None or (isinstance(category, type) and issubclass(category, Warning)))
        or _runs_once(caller)
    ):
        original(message, category, stacklevel + _CALLER_OF_BUILTIN, source, **options)
        return
    if recorder.suspension.active:
        return
    kind = type(message) if isinstance(message, Warning) else category or UserWarning
    place = _above(caller, stacklevel)
    if _is_error(str(message), kind, str(place.f_globals.get("__name__", "")), place.f_lineno):
        original(message, category, stacklevel + _CALLER_OF_BUILTIN)  # it raises, and the program may catch it
        return
    name = str(place.f_globals.get("__name__", "<string>"))
    _record(recorder, WARN, (message, kind, place.f_code.co_filename, place.f_lineno, name), {})


def _is_error(text: str, category: type[Warning], module: str, line: int) -> bool:
    """Whether the current filters turn a warning into an exception."""
    for action, message, kind, place, at in warnings.filters:
        if (
            (message is None or message.match(text))
            and issubclass(category, kind)
            and (place is None or place.match(module))
            and at in (0, line)
        ):
            return action == "error"
    return False


def _above(frame: FrameType, stacklevel: int) -> FrameType:
    """The frame that a warning with this ``stacklevel`` is attributed to; Thunder's own frames do not count."""
    outer = frame
    for _ in range(stacklevel - 1):
        caller = outer.f_back
        while caller is not None and is_of_thunder(caller.f_code):
            caller = caller.f_back
        if caller is None:
            break
        outer = caller
    return outer


def _runs_once(frame: FrameType | None) -> bool:
    """Whether a frame is inside a function with a ``functools.lru_cache``, which later calls do not run."""
    while frame is not None and frame.f_code is not Observer.run.__code__:
        code = frame.f_code
        if kind_of(code) is CodeKind.USER and any(_is_cached(held, code) for held in _held_by_name(frame)):
            return True
        frame = frame.f_back
    return False


def _held_by_name(frame: FrameType) -> Iterator[Any]:
    """Candidates for the decorated function of a frame: by qualified name, in its class, at its caller."""
    code, caller = frame.f_code, frame.f_back
    first, *rest = code.co_qualname.split(".")
    value = frame.f_globals.get(first)
    for name in rest:
        value = getattr_static(value, name, None)
    yield value
    if code.co_argcount:
        receiver = frame.f_locals.get(code.co_varnames[0])
        yield getattr_static(receiver if isinstance(receiver, type) else type(receiver), code.co_name, None)
        yield from (namespace_of(receiver) or {}).values()
    if caller is not None:
        yield from caller.f_locals.values()


def _is_cached(value: Any, code: CodeType) -> bool:
    while isinstance(value, staticmethod | classmethod):
        value = value.__func__
    if not isinstance(value, functools._lru_cache_wrapper):
        return False
    wrapped = value.__wrapped__
    return getattr(getattr(wrapped, "__func__", wrapped), "__code__", None) is code


def set_printoptions(recorder: Recorder, original: Callable[..., None], /, *args: Any, **options: Any) -> None:
    """The interception of `torch.set_printoptions`: an op in order with other prints."""
    _record(recorder, _SET_PRINTOPTIONS, args, options)


def _record(recorder: Recorder, symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    refuse_classes((args, kwargs), "a tensor to be printed", is_computed)
    call = CallArguments(recorder.inputs, args, kwargs, numbers=(bool, int, float))
    recorder.trace.write(symbol, call.args, call.kwargs, effects=Effects(external=True))


def _shape_text(recorder: Recorder, value: Any) -> Any:
    """The text of a shape with sizes that vary; other values unchanged."""
    if type(value) is not torch.Size:
        return value
    items: list[Any] = list(value)
    if not any(type(size) is TracedSize for size in items):
        return value
    sizes = [formatted_texts.in_text(recorder, size) if type(size) is TracedSize else str(size) for size in items]
    return f"torch.Size([{', '.join(sizes)}])"


def _printable(value: Any) -> Any:
    """A value as the argument of an op: an object without tensors becomes its current text, which is guarded."""
    return value if _has_tensors(value) or _is_literal(value) else str(value)


def _has_tensors(value: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) or type(leaf) is TracedNumber for leaf in iterate_leaves(value))


def _is_literal(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_literal, value))
    if type(value) is dict:
        return all(map(_is_literal, (*value, *value.values())))
    # the program may still change others, such as a Counter
    return type(value) in _LITERAL or type(value) is TracedSize

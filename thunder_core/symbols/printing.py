"""Functions by which traces print, log and warn."""

from __future__ import annotations

import builtins
import logging
import sys
import warnings
from typing import Any, Final

from thunder_core.ir.symbol import Symbol, Tag

_print: Final = builtins.print  # not what replaces it while a program is recorded
_warn_explicit: Final = warnings.warn_explicit


def print_values(*values: Any, to_stderr: bool = False, numbers: tuple[Any, ...] = (), **options: Any) -> None:
    """``print(*values, **options)``, to the standard output or error stream of the moment.

    Args:
        numbers: if there are any, the strings among the values are format strings of them.
    """
    if numbers:
        values = tuple([value.format(*numbers) if type(value) is str else value for value in values])
    _print(*values, file=sys.stderr if to_stderr else sys.stdout, **options)


def log_values(
    logger: str, level: int, place: tuple[str, int, str], message: Any, *args: Any, numbers: tuple[Any, ...] = ()
) -> None:
    """Log ``message % args``, if the logger of that name is enabled for the level.

    Args:
        place: file, line and function that the record names.
        numbers: if there are any, the message is a format string of them.
    """
    if numbers:
        message = message.format(*numbers)
    target = logging.getLogger(logger)
    if target.isEnabledFor(level):
        file, line, function = place
        target.handle(target.makeRecord(target.name, level, file, line, message, args, None, function))


def warn(message: str | Warning, category: type[Warning], file: str, line: int, module: str) -> None:
    """Warn at a place, under the filters of the moment: ``default`` shows a warning of a place once, as in eager.

    Args:
        module: the name of the Python module of the place, which remembers what was shown.
    """
    if isinstance(message, Warning):
        message = message.with_traceback(None)  # of an earlier call, where it is an error
    held = sys.modules.get(module)
    registry = None if held is None else vars(held).setdefault("__warningregistry__", {})
    _warn_explicit(message, category, file, line, module, registry)


_REPORT: Final = frozenset({Tag.REPORT})
PRINT_VALUES: Final = Symbol("thunder_core.symbols.printing.print_values", print_values, tags=_REPORT)
LOG_VALUES: Final = Symbol("thunder_core.symbols.printing.log_values", log_values, tags=_REPORT)
WARN: Final = Symbol("thunder_core.symbols.printing.warn", warn, tags=_REPORT)

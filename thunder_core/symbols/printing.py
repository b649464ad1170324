"""What a program prints and logs, done by lines of its trace."""

from __future__ import annotations

import builtins
import logging
import sys
from typing import Any, Final

from thunder_core.ir.symbol import Symbol

_print: Final = builtins.print  # not what replaces it while a program is recorded


def print_values(*values: Any, to_stderr: bool = False, **options: Any) -> None:
    """``print(*values, **options)``, to the standard output or error stream of the moment."""
    _print(*values, file=sys.stderr if to_stderr else sys.stdout, **options)


def log_values(logger: str, level: int, place: tuple[str, int, str], message: Any, *args: Any) -> None:
    """Log ``message % args``, if the logger of that name takes the level.

    Args:
        place: file, line and function that the record names.
    """
    target = logging.getLogger(logger)
    if target.isEnabledFor(level):
        file, line, function = place
        target.handle(target.makeRecord(target.name, level, file, line, message, args, None, function))


PRINT_VALUES: Final = Symbol("thunder_core.symbols.printing.print_values", print_values)
LOG_VALUES: Final = Symbol("thunder_core.symbols.printing.log_values", log_values)

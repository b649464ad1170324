"""The functions that are intercepted while a program is recorded: those of the core's table, and of plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any, Final

from thunder_core.checks import stance
from thunder_core.forking import in_child
from thunder_core.tracing.this_thread import this_thread
from thunder_frontend.observe.object_guards import GUARDED_APART
from thunder_frontend.observe.stand_ins import FUNCTIONS_OF_C
from thunder_frontend.record import (
    autograd_functions,
    disabled_functions,
    module_calls,
)
from thunder_frontend.record.communication import Communication, add_communication
from thunder_frontend.record.interception import (
    ApplyInterception,
    Interception,
    Setting,
    SharedRows,
    owner_of,
    replacement_of,
    setting_for_private_name,
    static_attribute,
    unbound,
    uninstall_all,
)
from thunder_frontend.record.interception_table import APPLY, TABLE, Rows

_added: Final[list[Interception]] = []
_functions_of_c: Final[dict[Any, Interception]] = {}
"""The rows of intercepted functions of C, which programs may hold in variables."""
_stand_ins: Final[dict[Any, Any]] = {}
"""By replacement of such a function, the original."""


@contextmanager
def intercepting() -> Iterator[None]:
    """Install the interceptions for the duration, and make ``torch.compiler.is_compiling()`` true.

    Functions that `torch.compile` compiled run uncompiled meanwhile: what they call is part of the program. While
    several threads record programs, the first installs and the last puts everything back.
    """
    with disabled_functions.CALLS.entered(), _ROWS.entered():
        yield


def uninstall_unused() -> None:
    """Put everything back, unless a thread records a program: a signal handler that raises may have prevented it."""
    _ROWS.uninstall_unused()
    disabled_functions.CALLS.uninstall_unused()


@in_child
def _uninstall_in_child() -> None:
    """Put back what other threads have replaced, unless the thread that forked records a program itself."""
    is_recording = this_thread.recorder is not None
    _ROWS.keep_for_this_thread(is_entered=is_recording)
    disabled_functions.CALLS.keep_for_this_thread(is_entered=is_recording or disabled_functions.is_watching())
    if not is_recording:
        if not disabled_functions.is_watching():
            uninstall_all()
        uninstall_unused()


def _rows_of_core() -> list[Interception | Setting]:
    """The rows of the core's table that no added row replaces."""
    added: dict[str, list[Interception]] = {}
    for row in _added:
        added.setdefault(row.name, []).append(row)
    return [
        row
        for row in TABLE
        if row.name not in added or not any(_is_same_function(row, other) for other in added[row.name])
    ]


def add_interceptions(rows: Iterable[Interception | Communication]) -> None:
    """Add rows for all recordings that begin later. Adding the same row objects again has no effect.

    A row for a function that the core only refuses replaces the row of the core.

    Raises:
        ValueError: an attribute is intercepted already, is inherited, or does not exist; or communication is recorded
            already.
    """
    for row in rows:
        if isinstance(row, Communication):
            add_communication(row)
        elif row not in _added:
            _check(row)
            _note_functions_of_c([row])
            _added.append(row)
            if not row.observed and isinstance(row.owner, str):
                GUARDED_APART.add(row.owner)
            if row.takes_over:
                module_calls.take_over(row.takes_over)


def _check(row: Interception) -> None:
    owner = owner_of(row)
    where = f"{row.owner if isinstance(row.owner, str) else row.owner.__name__}.{row.name}"
    if owner is not None:
        try:
            static_attribute(owner, row.name)
        except AttributeError as error:
            raise ValueError(f"{where} cannot be intercepted, since there is no such attribute") from error
        inherited = row.name not in vars(owner) and not isinstance(row, ApplyInterception)
        if inherited:  # setting an attribute of the class would make guards of the class fail
            raise ValueError(f"{where} cannot be intercepted, since it is inherited: name the class that defines it")
    for other in (*TABLE, *_added):
        if _is_same_function(row, other) and not (other in TABLE and isinstance(other, Interception) and other.refuses):
            raise ValueError(f"{where} is already intercepted: {other.purpose}")


def _is_same_function(row: Interception | Setting, other: Interception | Setting) -> bool:
    if row.name != other.name:
        return False
    owner = owner_of(row)
    return row.owner == other.owner or (owner is not None and owner_of(other) is owner)


def intercepted(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, or its replacement while it is intercepted: the program may be such a function itself."""
    stand_in: Callable[..., Any] | None = stand_in_of(function)
    return function if stand_in is None else stand_in


def stand_in_of(function: Any) -> Any:
    """The replacement of an intercepted function of C, whatever name the program uses for it; None for others."""
    if type(function) in FUNCTIONS_OF_C and function in _functions_of_c:
        return replacement_of(_functions_of_c[function])
    if autograd_functions.is_apply(function):
        return MethodType(replacement_of(APPLY), function.__self__)
    return None


def original_of(value: Any) -> Any:
    """The function of C that ``value`` replaces while a program is recorded; ``value`` for other objects."""
    if type(value) is MethodType and value.__func__ is replacement_of(APPLY):
        cls: Any = value.__self__
        return autograd_functions.apply_of(cls)
    return _stand_ins.get(value, value) if type(value) is FunctionType else value


def _note_functions_of_c(rows: Iterable[Interception | Setting]) -> None:
    for row in rows:
        if isinstance(row, Interception) and (owner := owner_of(row)) is not None:
            function = unbound(static_attribute(owner, row.name))
            if type(function) in FUNCTIONS_OF_C:
                _functions_of_c[function] = row
                _stand_ins[replacement_of(row)] = function


def _stance() -> Rows:
    """Functions that `torch.compile` compiled run their code, as under ``torch.compiler.set_stance("force_eager")``."""
    from thunder_core.pytorch_internals import DynamoStance, dynamo_stance  # which takes long to import

    eager = DynamoStance(stance.FORCE_EAGER)
    rows = setting_for_private_name(dynamo_stance, eager, "functions compiled by torch.compile run uncompiled")
    if rows:
        stance.place(eager, dynamo_stance.value)
    return rows


_ROWS: Final = SharedRows(lambda: (*_rows_of_core(), *_stance(), *_added))
_note_functions_of_c(TABLE)

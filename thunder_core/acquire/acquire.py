"""Acquisition: run the user's program once and record it as a trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from thunder_core.acquire import data_dependence, module_calls
from thunder_core.acquire.acquired import Acquired
from thunder_core.acquire.attempt import Attempt, Guesses, RecordAgain, key_of, why_constant
from thunder_core.acquire.eager_calls import module_to_blame, update_to_blame
from thunder_core.acquire.input_sizes import VaryingSizes
from thunder_core.acquire.record_program import record
from thunder_core.errors import DataDependentError, EagerCallNeeded, InternalError, UnsupportedError
from thunder_core.guards.stand_ins import recording_turn


def acquire(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    varying: VaryingSizes | None = None,
    guesses: Guesses | None = None,
    *,
    defines_sizes: bool = True,
) -> Acquired:
    """Run ``function(*args, **kwargs)`` once without computing anything, and return it as a trace.

    The program's changes to Python objects are undone afterwards; they are part of what was recorded.

    Args:
        varying: which sizes of inputs become symbols. Where that fails the program is recorded again with constants.
        guesses: the values of tensors that the program's Python is known to read. The recording uses these first, then
            the values of this call, and writes ops that raise `thunder_core.errors.WrongGuess` in a run with other
            values. None: a program that reads values is refused.
        defines_sizes: whether data-dependent sizes may be symbols. Where that fails they are constants.

    Raises:
        AcquisitionError: the program cannot be recorded; the message names the user's line.
        EagerCallNeeded: the program has lazy modules that only an eager first call can initialize; it returns or stores
            a module or a Parameter that it creates; or it calls functions of ``functools.lru_cache`` with tensors.
        Exception: an error of the recording itself. An exception that the program raises is recorded as its end.
    """
    module_calls.generate_code(function)
    known = guesses if guesses is not None and guesses.values else None
    attempt = Attempt(varying=varying, guesses=known, defines_sizes=defines_sizes)
    first: Exception | None = None
    advanced: list[str] = []
    while True:
        _check_repeatable(advanced)
        try:
            with recording_turn():
                return record(function, args, kwargs, attempt, advanced)
        except EagerCallNeeded as needed:
            _check_repeatable(advanced, needed)
            raise
        except RecordAgain as again:
            attempt = again.following(attempt)
        except InternalError:
            raise
        except Exception as error:
            following = _next_attempt(attempt, error, function, guesses)
            if following is None and attempt.eager_modules:  # that these modules cannot be one op may be the cause
                following = _with_values(attempt, guesses)
            if following is None:
                following = _with_fewer_symbols(attempt, error, guesses)
                if following is None:
                    if first is None:
                        raise
                    raise first from None
                first = first if attempt.eager_modules else None
            if following.eager_modules > attempt.eager_modules:
                first = first or error
            elif following.guesses is not attempt.guesses:
                first = None  # the next error has the reason why a value cannot be taken
            attempt = following


def _next_attempt(
    attempt: Attempt, error: Exception, function: Callable[..., Any], guesses: Guesses | None
) -> Attempt | None:
    """The next attempt after one in which the program needed values of tensors; None for any other error.

    Args:
        guesses: as for `acquire`.
    """
    if not isinstance(error, DataDependentError | UnsupportedError):
        return None
    update = update_to_blame(error, attempt.eager_updates)
    if update is not None:
        return replace(attempt, eager_updates=attempt.eager_updates | {update})
    if isinstance(error, UnsupportedError) and not isinstance(error.__cause__, data_dependence.MetadataUnknown):
        return None
    module = module_to_blame(error, function, attempt.eager_modules)
    if module is not None:
        return replace(attempt, eager_modules=attempt.eager_modules | {key_of(module)})
    return _with_values(attempt, guesses)


def _with_values(attempt: Attempt, guesses: Guesses | None) -> Attempt | None:
    """The attempt that takes the values of this call; None if values are refused, or the attempt took them already."""
    if attempt.guesses is not None or guesses is None:
        return None
    return replace(attempt, graph=False, eager_modules=frozenset(), eager_updates=frozenset(), guesses=guesses)


def _with_fewer_symbols(attempt: Attempt, error: Exception, guesses: Guesses | None) -> Attempt | None:
    """The next attempt after one with symbolic sizes that failed; None if the attempt had no symbols.

    Data-dependent sizes become constants first, as PyTorch may branch on them; sizes of inputs become constants in a
    further attempt.
    """
    if attempt.has_data_dependent_sizes:
        if attempt.general:
            return replace(attempt, general=False, guesses=guesses)
        reason = "" if attempt.varying is not None else why_constant(error)
        return replace(attempt, defines_sizes=False, guesses=guesses, constant_sizes=reason)
    if attempt.varying is not None:
        values = None if attempt.guesses is None else guesses
        return replace(attempt, varying=None, constant_sizes=why_constant(error), guesses=values)
    return None


def _check_repeatable(advanced: list[str], needed: EagerCallNeeded | None = None) -> None:
    if advanced and needed is not None:
        raise UnsupportedError(
            f"{needed}; it has to run in eager PyTorch, but has been recorded, and {', '.join(advanced)} may have "
            "advanced meanwhile",
            advice=(
                "do that outside of the compiled function",
                "read no object that has iterators or files inside of the compiled function",
            ),
        ) from needed
    if advanced:
        raise UnsupportedError(
            f"the program has to be recorded a second time, and {', '.join(advanced)} has advanced in the first",
            advice=(
                "take values from iterators and files outside of the compiled function, and pass them as arguments",
                "a second recording is needed for gradients that the program computes itself, for lazy modules and for "
                "submodules that depend on values",
            ),
        )

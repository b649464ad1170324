"""The front end that runs the user's program once and records it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from thunder_core.contract import Recording, Request
from thunder_core.errors import InternalError, RunEagerly, UnsupportedError
from thunder_core.tracing.signal_handlers import of_signal_handler
from thunder_core.tracing.tracebacks import free_frames
from thunder_frontend.observe.stand_ins import recording_turn
from thunder_frontend.record import module_calls
from thunder_frontend.record.attempt import Attempt, RecordAgain
from thunder_frontend.record.interceptions import uninstall_unused
from thunder_frontend.record.record_program import record
from thunder_frontend.record.recorder import active_recorder, set_active_recorder
from thunder_frontend.record.retries import Failure, next_attempt
from thunder_frontend.record.tensor_classes import RefusedClasses, recording_with

_ANYTHING: Final = Request()


@dataclass(frozen=True)
class PythonFrontEnd:
    """Runs a program once without computing anything, and records its calls of PyTorch."""

    def record(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        request: Request = _ANYTHING,
    ) -> Recording:
        """Record ``function(*args, **kwargs)``, as `thunder_core.contract.FrontEnd`.

        The program's changes to Python objects are undone afterwards; they are part of what was recorded.

        Raises:
            AcquisitionError: the program cannot be recorded; the message names the user's line.
            RunEagerly: the program has lazy modules that only an eager first call can initialize; it returns or
                stores a module or a Parameter that it creates; or it calls functions of ``functools.lru_cache`` with
                tensors.
            Exception: an error of the recording itself. An exception that the program raises is recorded as its end.
        """
        module_calls.generate_code(function)
        previous = active_recorder()
        try:
            with recording_with(request.wrapper_classes or RefusedClasses()):
                return _record(function, args, kwargs, request)
        except BaseException as error:
            free_frames(error)
            uninstall_unused()  # a signal handler may have raised in a context manager, which then did not end
            set_active_recorder(previous)
            raise


def _record(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], request: Request) -> Recording:
    """Record the program; where that fails, again with other options (`thunder_frontend.record.retries`)."""
    assumed = request.assumed_values
    known = assumed if assumed is not None and assumed.values else None
    attempt = Attempt(varying=request.varying, guesses=known, defines_sizes=request.defines_sizes)
    first: Exception | None = None
    advanced: list[str] = []
    while True:
        _check_repeatable(advanced)
        try:
            with recording_turn():
                return record(function, args, kwargs, attempt, advanced)
        except RunEagerly as needed:
            _check_repeatable(advanced, needed)
            raise
        except RecordAgain as again:
            attempt = again.following(attempt)
        except InternalError:
            raise
        except Exception as error:
            if of_signal_handler(error) is not None:
                raise
            following = next_attempt(attempt, Failure(error, function, assumed))
            if following is None:
                if first is None:
                    raise
                raise first from None
            if following.eager_modules > attempt.eager_modules:
                first = first or error
            elif following.guesses is not attempt.guesses:
                first = None  # the next error has the reason why a value cannot be taken
            attempt = following


def _check_repeatable(advanced: list[str], needed: RunEagerly | None = None) -> None:
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


front_end: Final = PythonFrontEnd()
"""The front end ``run`` of configurations."""

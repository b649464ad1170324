"""The retries of a recording that ended with an error: the first of the `RULES` that applies makes the next `Attempt`.

The recorder itself raises `thunder_frontend.record.attempt.RecordAgain` where it finds out that the program has to be
recorded with other options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from thunder_core.contract import CONSTANT_SIZES, AssumedValues, Retry
from thunder_core.errors import DataDependentError, UnsupportedError
from thunder_core.tracing.sizes import why_constant
from thunder_frontend.record.attempt import Attempt, key_of
from thunder_frontend.record.data_dependence import MetadataUnknown
from thunder_frontend.record.eager_calls import module_to_blame, update_to_blame


@dataclass(frozen=True)
class Failure:
    """The end of an attempt.

    Attributes:
        error: with which it ended.
        function: the program.
        values: as `thunder_core.contract.Request.assumed_values`.
    """

    error: Exception
    function: Callable[..., Any]
    values: AssumedValues | None

    @property
    def needs_values(self) -> bool:
        """Whether the program needed values of tensors: for a number, or for the metadata of a result."""
        if isinstance(self.error, UnsupportedError):
            return isinstance(self.error.__cause__, MetadataUnknown)
        return isinstance(self.error, DataDependentError)

    def retry(self, change: str) -> Retry:
        """The retry after it, for the report."""
        return Retry(change, why_constant(self.error))


Rule = Callable[[Attempt, Failure], Attempt | None]
"""The attempt after one that failed; None if the rule is for others."""


def next_attempt(attempt: Attempt, failure: Failure) -> Attempt | None:
    """The attempt of the first rule that has one; None if the error has to be raised."""
    return next((found for rule in RULES if (found := rule(attempt, failure)) is not None), None)


def update_is_one_op(attempt: Attempt, failure: Failure) -> Attempt | None:
    """A function of an optimizer that cannot be recorded is one op of the trace."""
    if not isinstance(failure.error, DataDependentError | UnsupportedError):
        return None
    update = update_to_blame(failure.error, attempt.eager_updates)
    if update is None:
        return None
    return attempt.then(failure.retry(f"{update.__name__} is one op"), eager_updates=attempt.eager_updates | {update})


def module_is_one_op(attempt: Attempt, failure: Failure) -> Attempt | None:
    """The innermost module that needs values of tensors is one op of the trace."""
    if not failure.needs_values:
        return None
    module = module_to_blame(failure.error, failure.function, attempt.eager_modules)
    if module is None:
        return None
    return attempt.then(
        failure.retry(f"{type(module).__name__} is one op"), eager_modules=attempt.eager_modules | {key_of(module)}
    )


def values_of_this_call(attempt: Attempt, failure: Failure) -> Attempt | None:
    """The program's Python reads values of this call, and each run checks them."""
    # that modules cannot be one op may be the cause of any error
    if not (failure.needs_values or attempt.eager_modules) or attempt.guesses is not None or failure.values is None:
        return None
    return attempt.then(
        failure.retry("values of this call are read and checked in each run"),
        graph=False,
        eager_modules=frozenset(),
        eager_updates=frozenset(),
        guesses=failure.values,
    )


def data_dependent_sizes_of_this_call(attempt: Attempt, failure: Failure) -> Attempt | None:
    """Conditions on data-dependent sizes have the results of this call: PyTorch may branch on 0 and 1."""
    if not (attempt.has_data_dependent_sizes and attempt.general):
        return None
    return attempt.then(
        failure.retry("conditions on data-dependent sizes have the results of this call"),
        general=False,
        guesses=failure.values,
    )


def constant_data_dependent_sizes(attempt: Attempt, failure: Failure) -> Attempt | None:
    """Data-dependent sizes are constants."""
    if not attempt.has_data_dependent_sizes:
        return None
    retry = failure.retry("data-dependent sizes are constants")
    reason = "" if attempt.varying is not None else retry.reason
    return attempt.then(retry, defines_sizes=False, guesses=failure.values, constant_sizes=reason)


def constant_sizes(attempt: Attempt, failure: Failure) -> Attempt | None:
    """All sizes are constants."""
    if attempt.varying is None:
        return None
    retry = failure.retry(CONSTANT_SIZES)
    values = None if attempt.guesses is None else failure.values
    return attempt.then(retry, varying=None, constant_sizes=retry.reason, guesses=values)


RULES: Final[tuple[Rule, ...]] = (
    update_is_one_op,
    module_is_one_op,
    values_of_this_call,
    data_dependent_sizes_of_this_call,
    constant_data_dependent_sizes,
    constant_sizes,
)
"""The rules, in order."""

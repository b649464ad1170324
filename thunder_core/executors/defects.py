"""Executors that raise where they should decide: a decline, or an error with ``THUNDER_STRICT=1``."""

from __future__ import annotations

from thunder_core.errors import ExecutorError, ExecutorWarning, is_strict
from thunder_core.ir.location import SourceLocation
from thunder_core.tracing.user_frames import warn_user


def declined_by_failing(
    executor: str, what: str, step: str, location: SourceLocation | None, error: BaseException | str
) -> str:
    """The reason for which ``what`` is declined then; there is a warning.

    Args:
        executor: its name.
        what: it was queried about.
        step: of the executor, that failed.
        error: what it raised, or what is wrong with what it returned.

    Raises:
        ExecutorError: ``THUNDER_STRICT=1``.
    """
    told = error if isinstance(error, str) else f"failed with {type(error).__name__}: {error}"
    problem = f"its {step} {told}"
    if is_strict():
        cause = None if isinstance(error, str) else error
        raise ExecutorError(f"{executor}: {what}: {problem}", location=location) from cause
    warn_user(f"{executor} declines {what}: {problem}", ExecutorWarning)
    return problem

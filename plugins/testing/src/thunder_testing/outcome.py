"""The outcome of a case of a battery: the behavior of a compiled program as a status and a message."""

from __future__ import annotations

import enum
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from thunder_core.errors import ThunderError
from thunder_testing.compare import BehaviourMismatch


class Status(enum.IntEnum):
    """The status of a case, in increasing order of severity."""

    SKIPPED = 0  # eager does not pass
    PASSED = 1
    ERROR = 2  # an error of Thunder on purpose, before anything wrong is computed
    WRONG = 3
    CRASH = 4  # any other exception, or the death of the process
    TIMEOUT = 5


@dataclass(frozen=True)
class Outcome:
    """Status of a case and, unless it passed, the reason; for a crash, the traceback."""

    status: Status
    message: str = ""

    @property
    def headline(self) -> str:
        """The first line of the message."""
        return self.message.strip().split("\n", 1)[0]


class CaseTimeout(BaseException):
    """A case exceeded its time limit. Not an Exception, so that handlers in the case do not catch it."""


def outcome_of(case: Callable[[], object], *, seconds: int = 60) -> Outcome:
    """Run ``case`` and classify the result. Only for the main thread, because of the time limit."""

    def on_alarm(_number: int, _frame: Any) -> None:
        raise CaseTimeout

    previous = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(seconds)
    try:
        case()
    except ThunderError as error:
        return Outcome(Status.ERROR, f"{type(error).__name__}: {error}")
    except BehaviourMismatch as error:
        return Outcome(Status.WRONG, str(error))
    except CaseTimeout:
        return Outcome(Status.TIMEOUT, f"no result after {seconds} s")
    except Exception as error:  # noqa: BLE001 - classified, not hidden: the battery reports it
        return Outcome(Status.CRASH, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return Outcome(Status.PASSED)

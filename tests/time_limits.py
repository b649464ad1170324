"""A time limit for each test: one that takes longer fails with its name, after the stacks of all threads.

pytest-timeout starts and cancels the timers; the limit is the option ``timeout`` in pyproject.toml or the mark of that
name. A test that hangs in C is not interrupted, but its stack is shown.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import pytest

_cancel: Final = pytest.StashKey[Callable[[], None]]()
_stderr: Final = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Duplicate the descriptor of stderr, while pytest does not capture it, for the stacks of tests that hang."""
    config.stash[_stderr] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Close it."""
    os.close(config.stash[_stderr])


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Start the timer of a test. pytest-timeout does it where signals cannot, and while a debugger runs."""
    main = threading.current_thread() is threading.main_thread()
    if settings.method != "signal" or not main or sys.gettrace() is not None:
        return None

    def fail(signum: int, frame: Any) -> None:
        __tracebackhide__ = True
        pytest.fail(f"{item.nodeid} took longer than its limit of {settings.timeout:g} s")

    previous = signal.signal(signal.SIGALRM, fail)
    faulthandler.register(signal.SIGALRM, file=item.config.stash[_stderr], all_threads=True, chain=True)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)

    def cancel() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
        signal.signal(signal.SIGALRM, previous)

    item.stash[_cancel] = cancel
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> bool | None:
    """Stop the timer of a test."""
    cancel = item.stash.get(_cancel, None)
    if cancel is None:
        return None
    del item.stash[_cancel]
    cancel()
    return True

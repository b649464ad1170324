"""The state of a process that was forked while another thread compiled a program: the child lacks that thread."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

_locks: Final[weakref.WeakKeyDictionary[Any, set[str]]] = weakref.WeakKeyDictionary()
_functions: Final[list[Callable[[], None]]] = []


def renew_in_child(owner: Any, name: str) -> None:
    """Replace the lock ``name`` of an object, class or Python module in each forked child: any thread may hold it."""
    _locks.setdefault(owner, set()).add(name)


def in_child(function: Callable[[], None]) -> Callable[[], None]:
    """Call ``function`` in each forked child, once the locks are free: it undoes what other threads left."""
    _functions.append(function)
    return function


def _after_fork() -> None:
    for owner, names in _locks.items():
        for name in names:
            reentrant = isinstance(getattr(owner, name), type(threading.RLock()))
            setattr(owner, name, threading.RLock() if reentrant else threading.Lock())
    for function in _functions:
        function()


os.register_at_fork(after_in_child=_after_fork)

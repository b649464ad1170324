"""Which recorder, if any, the calling thread is recording with."""

from __future__ import annotations

import threading

from thunder_core.acquire.recorder import Recorder


class _Active(threading.local):
    recorder: Recorder | None = None


_active = _Active()


def active_recorder() -> Recorder | None:
    """The recorder of the program that this thread is acquiring, or None."""
    return _active.recorder


def set_active_recorder(recorder: Recorder | None) -> Recorder | None:
    """Make ``recorder`` the active one of this thread; returns the previous one."""
    previous, _active.recorder = _active.recorder, recorder
    return previous

"""Which recorder, if any, the calling thread is recording with."""

from __future__ import annotations

import threading

from thunder_core.acquire.recorder import Recorder
from thunder_core.pytorch_internals import peek_interpreter_stack


class _ThisThread(threading.local):
    recorder: Recorder | None = None


this_thread = _ThisThread()
"""What `active_recorder` reads; for code that is observed, where a call would be another frame to look at."""


def active_recorder() -> Recorder | None:
    """The recorder of the program that this thread is acquiring, or None."""
    return this_thread.recorder


def program_recorder() -> Recorder | None:
    """`active_recorder` for a call of the program: None while the recorder runs code of its own."""
    recorder = this_thread.recorder
    return None if recorder is None or recorder.suspension.active else recorder


def tensor_recorder() -> Recorder | None:
    """`program_recorder` for a call that acts on tensors.

    None under the transformations of `torch.func`, too: what the call does is recorded as the ATen calls that come out.
    """
    return None if peek_interpreter_stack() is not None else program_recorder()


def set_active_recorder(recorder: Recorder | None) -> Recorder | None:
    """Make ``recorder`` the active one of this thread; returns the previous one."""
    previous, this_thread.recorder = this_thread.recorder, recorder
    return previous

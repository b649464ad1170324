"""Calls that run outside of the modes that record: what they make is real, and no part of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder_core.acquire.active import set_active_recorder
from thunder_core.acquire.recorder import Recorder
from thunder_core.pytorch_internals import disable_current_modes


def call(recorder: Recorder, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """The interception of functions that make storages."""
    with disable_current_modes():
        return original(*args, **kwargs)


def run_once(recorder: Recorder, original: Callable[..., Any], /, *args: Any) -> Any:
    """The interception of what runs once in a process: the import of a module, or what makes an object that stays."""
    set_active_recorder(None)
    try:
        with disable_current_modes():
            return original(*args)
    finally:
        set_active_recorder(recorder)

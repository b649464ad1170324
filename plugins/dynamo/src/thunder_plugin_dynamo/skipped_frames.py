"""Keeps Dynamo out of Thunder's backward.

What Dynamo cannot trace it runs with its hook on frames left on. Where that calls ``backward``, Dynamo would take the
frames of Thunder's backward for the user's, and compile them.
"""

from __future__ import annotations

import functools

from thunder_core.runtime.bridge import Bridge
from thunder_plugin_dynamo.pytorch_internals import FrameAction, FrameExecStrategy, set_code_exec_strategy


@functools.cache
def skip_backward() -> None:
    """Have Dynamo leave backward alone, and all that it calls; costs nothing in calls."""
    set_code_exec_strategy(Bridge.backward.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))

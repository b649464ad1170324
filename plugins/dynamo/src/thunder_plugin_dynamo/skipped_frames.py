"""Prevents Dynamo from compiling Thunder's backward.

Dynamo runs code that it cannot trace with its frame hook enabled. If such code calls ``backward``, Dynamo would compile
the frames of Thunder's backward like user code.
"""

from __future__ import annotations

import functools

from thunder_core.runtime.bridge import Bridge
from thunder_plugin_dynamo.pytorch_internals import FrameAction, FrameExecStrategy, set_code_exec_strategy


@functools.cache
def skip_backward() -> None:
    """Make Dynamo skip backward, and all calls in it; this adds no time to calls."""
    set_code_exec_strategy(Bridge.backward.__code__, FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP))

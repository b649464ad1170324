"""What a function costs, without a clock: times differ from machine to machine, the number of calls does not."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any


def calls_of(function: Callable[[], Any]) -> int:
    """How many functions, of Python and of C, are called while ``function`` runs.

    The garbage collector waits meanwhile: finalizers of what other tests left would count.
    """
    count = 0

    def profiler(frame: object, event: str, value: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    sys.setprofile(profiler)
    try:
        function()
    finally:
        sys.setprofile(None)
        if enabled:
            gc.enable()
    return count

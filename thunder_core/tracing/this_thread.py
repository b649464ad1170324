"""What a thread does: it records a program, or runs a compiled one."""

from __future__ import annotations

import threading
from typing import Any, Final


class _ThisThread(threading.local):
    recorder: Any = None
    run: Any = None
    ranges: tuple[Any, ...] = ()


this_thread: Final = _ThisThread()
"""Its ``recorder`` is that of the front end that records a program in this thread; None if none does. Its ``run`` is the
`thunder_core.runtime.unguarded.Run` of the program with unguarded ops that runs; None if none does. Its ``ranges`` are the
`thunder_core.ir.profiler_ranges.ProfilerRange`s that the program which it records is in.

Observed code reads the attribute, since a call would add an observed frame.
"""

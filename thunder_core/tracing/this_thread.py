"""What a thread does: it records a program, or runs a compiled one."""

from __future__ import annotations

import threading
from typing import Any, Final


class _ThisThread(threading.local):
    recorder: Any = None
    run: Any = None
    ranges: tuple[Any, ...] = ()
    module: str = ""


this_thread: Final = _ThisThread()
"""What the calling thread does.

Its ``recorder`` is that of the front end that records a program; None if none does. Its ``run`` is the
`thunder_core.runtime.unguarded.Run` of a program with unguarded ops; None if none runs. Its ``ranges`` are those of the
profiler (`thunder_core.ir.profiler_ranges`) that the recorded program is in, and its ``module`` the path of
the innermost submodule; empty outside of submodules.

Observed code reads the attribute, since a call would add an observed frame.
"""

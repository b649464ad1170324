"""The hash of Triton's own files, which finds compiled kernels on disk."""

from __future__ import annotations

import threading
from functools import cache

from thunder_plugin_triton.environment import INTERPRETED

try:
    from triton.runtime.cache import triton_key
except ImportError:  # where Triton 3.4 has it
    from triton.compiler.compiler import triton_key


@cache
def begin() -> threading.Thread | None:
    """Have a thread compute it, once in a process; None in the interpreter, which compiles nothing.

    The first launch of a kernel needs it, and Triton keeps it from then on. It reads all of Triton's compiler: 0.2 to
    0.4 s, of which most can pass while Python records and transforms a program.
    """
    if INTERPRETED:
        return None
    thread = threading.Thread(target=triton_key, name="hash of Triton", daemon=True)
    thread.start()
    return thread

"""The hash of Triton's files, which is part of the key of compiled kernels on disk."""

from __future__ import annotations

import threading
from functools import cache

from thunder_plugin_triton.environment import INTERPRETED

try:
    from triton.runtime.cache import triton_key
except ImportError:  # its location in Triton 3.4
    from triton.compiler.compiler import triton_key


@cache
def begin() -> threading.Thread | None:
    """Compute the hash in a thread, once per process. Returns None in the interpreter, which does not compile.

    The first launch of a kernel needs the hash, which Triton caches. It reads all files of Triton's compiler: 0.2 to
    0.4 s, most of which overlap with recording and transforming a program.
    """
    if INTERPRETED:
        return None
    thread = threading.Thread(target=triton_key, name="hash of Triton", daemon=True)
    thread.start()
    return thread

"""Other threads that may run functions of PyTorch while this one captures a graph.

A capture takes the generator of its device over: a random function that another thread then runs raises PyTorch's error
"Offset increment outside graph capture". That thread may not even know of the compiled program.
"""

from __future__ import annotations

import re
import sys
import threading
from types import FrameType
from typing import Final

from thunder_plugin_cudagraphs.pytorch_internals import run_backward

_LIBRARIES: Final = re.compile(
    r"(IPython|execnet|ipykernel|tensorboard|torch\.(_inductor|utils\.data)|tqdm|wandb|zmq)(\..*)?"
)
"""Packages whose threads run no random functions on a device: they copy, write files, or serve a notebook or tests."""


def other_thread(*, backward: bool) -> str | None:
    """The name of another thread that may run functions of PyTorch; None if there is none.

    Threads that run no Python code are not seen: those of PyTorch work for a call of another thread.

    Args:
        backward: whether this thread runs a backward, perhaps for the other thread, which then waits for it.
    """
    own = threading.get_ident()
    threads = {thread.ident: thread for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident != own}
    others = [ident for ident, frame in frames.items() if not _is_of_library(frame)]
    if backward and (own not in threads or isinstance(threads[own], threading._DummyThread)):
        # This is a thread of autograd's engine. The thread that called backward waits in PyTorch until it ends.
        waiting = [ident for ident in others if frames[ident].f_code is run_backward.__code__]
        if len(waiting) == 1:
            others.remove(waiting[0])
    if not others:
        return None
    thread = threads.get(others[0])
    return "without a name" if thread is None else thread.name


def _is_of_library(innermost: FrameType) -> bool:
    """Whether the function that a thread was started with is one of these packages."""
    module = ""
    frame: FrameType | None = innermost
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        module, frame = module if name == threading.__name__ else name, frame.f_back
    return _LIBRARIES.fullmatch(module) is not None

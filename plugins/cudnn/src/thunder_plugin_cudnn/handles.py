"""Handles of cuDNN: each serves one thread at a time, and runs graphs on the stream that it is set to."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder_core.errors import ExecutorError
from thunder_plugin_cudnn import library
from thunder_plugin_cudnn.pytorch_internals import current_raw_stream


@dataclass(eq=False, slots=True)
class Handle:
    """A handle and where it runs.

    Attributes:
        of_library: what the library is given.
        stream: address of the stream that it is set to; 0 is the default stream, as of a new handle.
    """

    of_library: Any
    stream: int = 0


IDLE: Final[defaultdict[torch.device, list[Handle]]] = defaultdict(list)
"""What nobody uses at the moment, the last used one last."""
_CHOOSING: Final = threading.Lock()


def take(device: torch.device) -> Handle:
    """A handle that is set to PyTorch's current stream of the device, which is the current one. `give_back` it.

    To set a stream costs a handle several questions to the driver, and to create one allocates memory, which the
    capture of a CUDA graph does not allow.

    Raises:
        ExecutorError: a CUDA graph is captured, and no handle is idle.
    """
    stream = current_raw_stream(device.index) if device.type == "cuda" else 0
    idle = IDLE[device]
    with _CHOOSING:
        for place in range(len(idle) - 1, -1, -1):
            if idle[place].stream == stream:
                return idle.pop(place)
        found = idle.pop() if idle else None
    if found is None:
        refuse_capture(device, "a handle cannot be created")
        found = Handle(library.frontend().create_handle())
    if found.stream != stream:
        library.frontend().set_stream(found.of_library, stream)
        found.stream = stream
    return found


def give_back(device: torch.device, handle: Handle) -> None:
    """Let others take it."""
    IDLE[device].append(handle)


def refuse_capture(device: torch.device, problem: str) -> None:
    """Raise ExecutorError with this problem if a CUDA graph is captured on the current stream."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        advice = ("call the program once with these shapes before it is captured",)
        raise ExecutorError(f"cudnn: {problem} during the capture of a CUDA graph", advice=advice)

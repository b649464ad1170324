"""Handles of cuDNN. A handle is used by one thread at a time, and executes graphs on its stream."""

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
    """A handle with its stream.

    Attributes:
        of_library: the library's handle.
        stream: address of its stream; 0 for the default stream, which a new handle has.
    """

    of_library: Any
    stream: int = 0


IDLE: Final[defaultdict[torch.device, list[Handle]]] = defaultdict(list)
"""Unused handles by device, the last used one last."""
_CHOOSING: Final = threading.Lock()


def take(device: torch.device) -> Handle:
    """A handle for PyTorch's current stream of the current device ``device``. Return it with `give_back`.

    Setting a stream takes several driver calls, and creating a handle allocates memory, which is not possible during
    the capture of a CUDA graph.

    Raises:
        ExecutorError: a CUDA graph is being captured, and there is no unused handle.
    """
    stream = current_raw_stream(device.index) if device.type == "cuda" else 0
    idle = IDLE[device]
    with _CHOOSING:
        for place in range(len(idle) - 1, -1, -1):
            if idle[place].stream == stream:
                return idle.pop(place)
        handle = idle.pop() if idle else None
    if handle is None:
        refuse_capture(device, "a handle cannot be created")
        handle = Handle(library.frontend().create_handle())
    if handle.stream != stream:
        library.frontend().set_stream(handle.of_library, stream)
        handle.stream = stream
    return handle


def give_back(device: torch.device, handle: Handle) -> None:
    """Return a handle for further use."""
    IDLE[device].append(handle)


def refuse_capture(device: torch.device, problem: str) -> None:
    """Raise ExecutorError with this problem if a CUDA graph is being captured on the current stream."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        advice = ("call the program once with these shapes before it is captured",)
        raise ExecutorError(f"cudnn: {problem} during the capture of a CUDA graph", advice=advice)

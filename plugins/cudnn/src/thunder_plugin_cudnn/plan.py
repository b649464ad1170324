"""One compiled graph of cuDNN, called with tensors."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thunder_plugin_cudnn import handles


class Constant(NamedTuple):
    """A tensor of one dimension that all calls of a graph read, such as an epsilon.

    Attributes:
        value: of all its elements.
        size: how many there are.
        dtype: theirs.
        on_host: whether it is an argument of kernels, and not in the memory of the device.
    """

    value: float
    size: int
    dtype: torch.dtype
    on_host: bool = False


@dataclass(eq=False, slots=True)
class Plan:
    """A compiled graph. One thread at a time runs it.

    Attributes:
        graph: of the library.
        workspace: bytes that a call needs.
        constants: what all calls read.
        takes_tensors: whether the library takes tensors in the order of ``numbers``, as from 1.32 on. It reads them
            in C++ then; an address it describes in Python, in 12 times the time.
        numbers: of the tensors that a call gives, then of the constants; from the first call on.
        made: the constants as tensors, from the first call on.
        lock: taken by each call.
    """

    graph: Any
    workspace: int
    constants: Mapping[int, Constant]
    takes_tensors: bool
    numbers: tuple[int, ...] | None = None
    made: tuple[Tensor, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, tensors: Mapping[int, Tensor | None], device: torch.device) -> None:
        """Read and write the tensors, which have the numbers that the graph gave them.

        Which of them are None is the same in all calls: descriptions say so.
        """
        with self.lock:
            numbers = self.numbers or self._prepare(tensors, device)
            given = (*[tensor for tensor in tensors.values() if tensor is not None], *self.made)
            workspace = torch.empty(self.workspace, dtype=torch.uint8, device=device) if self.workspace else None
            handle = handles.take(device)
            try:
                if self.takes_tensors:
                    self.graph.execute(given, workspace, handle=handle.of_library, tensor_uids=numbers)
                else:
                    pack = {number: tensor.data_ptr() for number, tensor in zip(numbers, given, strict=True)}
                    address = 0 if workspace is None else workspace.data_ptr()
                    self.graph.execute(pack, address, handle=handle.of_library)
            finally:
                handles.give_back(device, handle)

    def _prepare(self, tensors: Mapping[int, Tensor | None], device: torch.device) -> tuple[int, ...]:
        """The constants, which other streams may read afterwards, and the numbers."""
        if self.constants:
            handles.refuse_capture(device, "constants cannot be made")
        self.made = tuple(
            [
                torch.full((each.size,), each.value, dtype=each.dtype, device="cpu" if each.on_host else device)
                for each in self.constants.values()
            ]
        )
        if device.type == "cuda" and self.constants:
            torch.cuda.current_stream(device).synchronize()
        given = [number for number, tensor in tensors.items() if tensor is not None]
        # plain numbers: frontends before 1.32 ask for the type `int` itself
        self.numbers = tuple([int(number) for number in (*given, *self.constants)])
        return self.numbers

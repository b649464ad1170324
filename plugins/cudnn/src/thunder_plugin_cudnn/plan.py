"""A compiled graph of cuDNN."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thunder_plugin_cudnn import handles


class Constant(NamedTuple):
    """A one-dimensional tensor that all calls of a graph read, such as an epsilon.

    Attributes:
        value: the value of all elements.
        size: number of elements.
        dtype: dtype of the elements.
        on_host: whether it is passed by value instead of in the memory of the device.
    """

    value: float
    size: int
    dtype: torch.dtype
    on_host: bool = False


@dataclass(eq=False, slots=True)
class Plan:
    """A compiled graph, which is executed by one thread at a time.

    Attributes:
        graph: the library's graph.
        workspace: bytes of workspace per call.
        constants: constants of all calls.
        takes_tensors: whether the library takes tensors in the order of ``numbers``, as from 1.32 on, and reads them in
            C++. For addresses it builds a description in Python, which takes 12 times as long.
        numbers: IDs of the tensors of a call, followed by those of the constants; set in the first call.
        constant_tensors: the constants as tensors; set in the first call.
        lock: held during each call.
    """

    graph: Any
    workspace: int
    constants: Mapping[int, Constant]
    takes_tensors: bool
    numbers: tuple[int, ...] | None = None
    constant_tensors: tuple[Tensor, ...] = ()
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, tensors: Mapping[int, Tensor | None], device: torch.device) -> None:
        """Execute the graph with tensors by the IDs of the graph.

        The same IDs are None in all calls, because the description contains them.
        """
        with self.lock:
            numbers = self.numbers or self._prepare(tensors, device)
            given = (*[tensor for tensor in tensors.values() if tensor is not None], *self.constant_tensors)
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
        """Create the constants, which other streams may read afterwards, and the IDs."""
        if self.constants:
            handles.refuse_capture(device, "constants cannot be created")
        self.constant_tensors = tuple(
            [
                torch.full((each.size,), each.value, dtype=each.dtype, device="cpu" if each.on_host else device)
                for each in self.constants.values()
            ]
        )
        if device.type == "cuda" and self.constants:
            torch.cuda.current_stream(device).synchronize()
        given = [number for number, tensor in tensors.items() if tensor is not None]
        # plain ints: frontends before 1.32 require the type `int` itself
        self.numbers = tuple([int(number) for number in (*given, *self.constants)])
        return self.numbers

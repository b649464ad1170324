"""Graphs of cuDNN, compiled: made once for each layout, called with the addresses of tensors.

A graph runs on PyTorch's current stream, with a workspace of PyTorch's allocator, and nothing waits for the device: a
call can be captured in a CUDA graph once its plan is made.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from thunder_core.errors import ExecutorError
from thunder_plugin_cudnn import library


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


Build = Callable[..., Mapping[int, Constant] | None]
"""Called with a graph and a description; adds the operation to the graph, and returns its constants by number."""
Key = tuple[Build, torch.device, tuple[Any, ...]]


@dataclass(eq=False, slots=True)
class Plan:
    """A compiled graph. One thread at a time runs it.

    Attributes:
        graph: of the library.
        workspace: bytes that a call needs.
        constants: what all calls read.
        made: the constants as tensors, from the first call on.
        lock: taken by each call.
    """

    graph: Any
    workspace: int
    constants: Mapping[int, Constant]
    made: dict[int, Tensor] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, tensors: Mapping[int, Tensor | None], device: torch.device) -> None:
        """Read and write the tensors, which have the numbers that the graph gave them."""
        with self.lock, _handle(device) as handle:
            made = self.made if self.made is not None else self._make(device)
            given = {**tensors, **made}.items()  # plain numbers: frontends before 1.32 ask for the type `int` itself
            pack = {int(number): tensor.data_ptr() for number, tensor in given if tensor is not None}
            workspace = torch.empty(max(self.workspace, 1), dtype=torch.uint8, device=device)
            self.graph.execute(pack, workspace.data_ptr(), handle=handle)

    def _make(self, device: torch.device) -> dict[int, Tensor]:
        """The constants; other streams may read them afterwards."""
        if self.constants:
            _refuse_capture(device)
        self.made = {
            number: torch.full((each.size,), each.value, dtype=each.dtype, device="cpu" if each.on_host else device)
            for number, each in self.constants.items()
        }
        if device.type == "cuda" and self.constants:
            torch.cuda.current_stream(device).synchronize()
        return self.made


_PLANS: Final[dict[Key, Plan | str]] = {}
_MAKING: Final = threading.Lock()
_IDLE: Final[defaultdict[torch.device, list[Any]]] = defaultdict(list)
"""Handles of cuDNN that nobody uses at the moment: a handle serves one thread at a time."""


def execute(
    build: Build, device: torch.device, description: tuple[Any, ...], tensors: Mapping[int, Tensor | None]
) -> None:
    """Run the graph that ``build`` makes of ``description``.

    Raises:
        ExecutorError: cuDNN has no kernel for it; or it would have to be compiled while a CUDA graph is captured.
    """
    plan = _PLANS.get((build, device, description))
    with _current(device):
        if plan is None:
            _refuse_capture(device)
            plan = _plan(build, device, description)
        if isinstance(plan, str):
            raise ExecutorError(f"cudnn: {plan}")
        plan.run(tensors, device)


def refusal(build: Build, device: torch.device, description: tuple[Any, ...]) -> str | None:
    """Why cuDNN has no kernel for that; None if it has, which is then compiled and kept."""
    with _current(device):
        plan = _plan(build, device, description)
    return plan if isinstance(plan, str) else None


def _plan(build: Build, device: torch.device, description: tuple[Any, ...]) -> Plan | str:
    key = (build, device, description)
    with _MAKING:
        if key not in _PLANS:
            with _handle(device) as handle:
                _PLANS[key] = _made(build, device, description, handle)
        return _PLANS[key]


def _made(build: Build, device: torch.device, description: tuple[Any, ...], handle: Any) -> Plan | str:
    cudnn = library.frontend()
    single = cudnn.data_type.FLOAT
    graph = cudnn.pygraph(name=build.__name__, intermediate_data_type=single, compute_data_type=single, handle=handle)
    try:
        constants = build(graph, *description) or {}
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise  # of the moment, not of the graph
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
        return f"cuDNN has no kernel for it: {_first_line(error)}"
    return Plan(graph, graph.get_workspace_size(), constants)


def _refuse_capture(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        advice = ("call the program once with these shapes before it is captured",)
        raise ExecutorError("cudnn: a graph cannot be prepared during the capture of a CUDA graph", advice=advice)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextmanager
def _handle(device: torch.device) -> Iterator[Any]:
    """A handle of cuDNN on PyTorch's current stream of the device, which is the current one."""
    cudnn, idle = library.frontend(), _IDLE[device]
    try:
        handle = idle.pop()
    except IndexError:
        handle = cudnn.create_handle()
    try:
        if device.type == "cuda":
            cudnn.set_stream(handle, torch.cuda.current_stream(device).cuda_stream)
        yield handle
    finally:
        idle.append(handle)


def _current(device: torch.device) -> Any:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()

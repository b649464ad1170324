"""A cache of compiled graphs of cuDNN, by layouts.

A graph runs on PyTorch's current stream, with a workspace of PyTorch's allocator, without synchronization: a call can
be captured in a CUDA graph after its plan has been created.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.errors import ExecutorError
from thunder_plugin_cudnn import handles, library
from thunder_plugin_cudnn.plan import Constant, Plan

Build = Callable[..., Mapping[int, Constant] | None]
"""Called with a graph and a description; adds the operation to the graph, and returns its constants by ID."""
Key = tuple[Build, torch.device, tuple[Any, ...]]

_PLANS: Final[dict[Key, Plan | str]] = {}
_MAKING: Final = threading.Lock()


def execute(
    build: Build, device: torch.device, description: tuple[Any, ...], tensors: Mapping[int, Tensor | None]
) -> None:
    """Execute the graph that ``build`` creates from ``description``.

    Raises:
        ExecutorError: cuDNN has no kernel for it, or it is not compiled and a CUDA graph is being captured.
    """
    plan = _PLANS.get((build, device, description))
    with _current(device):
        if plan is None:
            handles.refuse_capture(device, "a graph cannot be prepared")
            plan = _plan(build, device, description)
        if isinstance(plan, str):
            advice = ("exclude the operation with the option exclude of cudnn",)
            raise ExecutorError(f"cudnn: {plan}", advice=advice)
        plan.run(tensors, device)


def refusal(build: Build, device: torch.device, description: tuple[Any, ...]) -> str | None:
    """The reason why cuDNN has no kernel for a description; None if it has one, which is compiled and cached."""
    with _current(device):
        plan = _plan(build, device, description)
    return plan if isinstance(plan, str) else None


def _plan(build: Build, device: torch.device, description: tuple[Any, ...]) -> Plan | str:
    key = (build, device, description)
    with _MAKING:
        if key not in _PLANS:
            handle = handles.take(device)
            try:
                _PLANS[key] = _compiled(build, description, handle.of_library)
            finally:
                handles.give_back(device, handle)
        return _PLANS[key]


def _compiled(build: Build, description: tuple[Any, ...], handle: Any) -> Plan | str:
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
        raise  # a temporary error, not caused by the graph
    except (cudnn.cudnnGraphNotSupportedError, RuntimeError, ValueError) as error:
        return f"cuDNN has no kernel for it: {_first_line(error)}"
    takes_tensors = "tensor_uids" in inspect.signature(graph.execute).parameters
    return Plan(graph, graph.get_workspace_size(), constants, takes_tensors)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_HERE: Final = nullcontext()


def _current(device: torch.device) -> Any:
    """Make the device the current one, which it usually is."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return _HERE
    return torch.cuda.device(device)

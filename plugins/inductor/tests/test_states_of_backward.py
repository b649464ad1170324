"""Modes and settings that change between forward and backward: backward has the gradients of eager outside of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import thunder
from thunder_plugin_inductor import compilers

pytestmark = pytest.mark.skipif(
    compilers.missing_compiler("cpu") is not None, reason=str(compilers.missing_compiler("cpu"))
)


class _Doubling(TorchFunctionMode):
    """Doubles the results of torch functions. Eager's backward calls none."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result * 2 if isinstance(result, torch.Tensor) and result.is_floating_point() else result


@contextmanager
def _setting(get: Callable[[], Any], set_: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    set_(value)
    try:
        yield
    finally:
        set_(before)


STATES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "float16": lambda: torch.autocast("cpu", torch.float16),
    "two_autocasts": lambda: torch.autocast("cuda", torch.float16, enabled=torch.cuda.is_available()),
    "function_mode": _Doubling,
    "dispatch_mode": lambda: FlopCounterMode(display=False),
    "device": lambda: torch.device("meta"),
    "default_dtype": lambda: _setting(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": lambda: _setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True
    ),
    "precision": lambda: _setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


EXECUTORS: dict[str, tuple[str, ...]] = {"torch": (), "inductor": ("inductor",)}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh())


@pytest.fixture(scope="module", params=EXECUTORS.values(), ids=EXECUTORS)
def compiled(model: nn.Module, request: pytest.FixtureRequest) -> Any:
    return thunder.jit(model, executors=request.param)


def _gradients(run: Any, state: Callable[[], AbstractContextManager[Any]], order: int = 1) -> list[torch.Tensor]:
    """The gradients of a loss, or of the sum of its gradients, of which each backward runs in ``state``."""
    torch.manual_seed(1)
    x = torch.randn(4, 8, requires_grad=True)
    inputs = [x, *run.parameters()]
    value = run(x).square().sum()
    for step in range(order):
        with state():
            torch.autograd.backward(value, inputs=inputs, create_graph=step < order - 1)
        gradients: list[torch.Tensor] = [one.grad for one in inputs]
        for one in inputs:
            one.grad = None
        value = sum([gradient.sum() for gradient in gradients], torch.zeros(()))
    return gradients


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
@pytest.mark.battery
def test_backward_in_another_state(model: nn.Module, compiled: Any, state: Any, request: pytest.FixtureRequest) -> None:
    """The gradients are those of eager outside of the state, whether the program ran backward before or not."""
    expected = _gradients(model, torch.enable_grad)
    executors = EXECUTORS[request.node.callspec.id.split("-")[0]]
    for run in (compiled, thunder.jit(model, executors=executors)):
        for _ in range(2):
            torch.testing.assert_close(_gradients(run, state), expected)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("state", ["function_mode", "default_dtype"])
def test_second_derivatives_in_another_state(model: nn.Module, compiled: Any, state: str) -> None:
    expected = _gradients(model, torch.enable_grad, 2)
    torch.testing.assert_close(_gradients(compiled, STATES[state], 2), expected, rtol=1e-4, atol=1e-4)

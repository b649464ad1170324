"""Lines whose executor keeps a state between calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from graphed_programs import same
from torch import nn

import thunder
from thunder_core.executors import Claim, DerivativePair, OperatorExecutor, ReplayableState
from thunder_plugin_cudagraphs import CUDAGraphs, statistics


class Largest:
    """The largest value so far, which the layer divides by; noted on the device. It may be noted twice."""

    def __init__(self, line: Any) -> None:
        self.value: torch.Tensor | None = None

    def note(self, tensor: torch.Tensor) -> torch.Tensor:
        if self.value is None:
            self.value = torch.zeros((), device=tensor.device)
        return self.value.copy_(torch.maximum(self.value, tensor.detach().abs().max()))


class ReplayableLargest(Largest, ReplayableState):
    """The same; it may be part of a graph."""


def run(state: Largest, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.linear(input, weight, bias)


def forward(state: Largest, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    size = state.note(input)
    return F.linear(input, weight, bias) / size, (input, weight, size.clone())


def backward(state: Largest, residuals: Any, cotangents: Any, wanted: Any) -> Any:
    input, weight, size = residuals
    cotangent = cotangents[0] / size
    rows = cotangent.reshape(-1, cotangent.shape[-1])
    every = cotangent @ weight, rows.t() @ input.reshape(-1, input.shape[-1]), rows.sum(0)
    return tuple([one if want else None for one, want in zip(every, wanted)])


def fake(state: Largest, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
    return F.linear(input, weight, bias), (input, weight, input.new_empty(()))


def compiled(model: nn.Module, state: type[Largest], *transforms: Any) -> Any:
    claim = Claim(F.linear, run, derivative=DerivativePair(forward, backward, fake, pure=False), state=state)
    return thunder.jit(model, executors=[OperatorExecutor("largest", (claim,))], transforms=list(transforms))


def steps(program: Any, model: nn.Module, device: str) -> list[torch.Tensor]:
    """Results and gradients of steps whose largest values grow and shrink."""
    found = []
    for number in range(8):
        x = torch.randn(4, 16, generator=torch.Generator().manual_seed(number)).to(device) * (1 + number % 3)
        model.zero_grad()
        result = program(x)
        result.square().sum().backward()
        found += [result.detach().clone(), *[p.grad.clone() for p in model.parameters() if p.grad is not None]]
        del result  # it would be in the way of the next replay
    return found


def networks(device: str) -> list[nn.Module]:
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).to(device))
    return made


def test_replays_go_on_with_the_state(device: str) -> None:
    first, second = networks(device)
    program = compiled(second, ReplayableLargest, CUDAGraphs(copy_below=0))
    same(steps(program, second, device), steps(compiled(first, ReplayableLargest), first, device))
    found = {one.phase: one for one in statistics(program)}
    assert found["forward"].replays == 6, found["forward"]
    assert found["backward"].replays == 6, found["backward"]


@pytest.mark.usefixtures("backend")
def test_other_states_stay_outside() -> None:
    first, second = networks("cpu")
    program = compiled(second, Largest, CUDAGraphs(copy_below=0))
    same(steps(program, second, "cpu"), steps(compiled(first, Largest), first, "cpu"))
    (found,) = [one for one in statistics(program) if one.phase == "forward"]
    assert found.refused is not None
    assert "has effects, which a replay would not repeat" in found.refused

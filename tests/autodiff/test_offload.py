"""Saved values that wait for backward on the host: copies start early, are waited for, and change no gradient."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder._inspection import compiled_program
from thunder_core.autodiff.joint import Joint, Partitioned
from thunder_core.autodiff.partitioning import offload
from thunder_core.autodiff.partitioning.dependence import Dependence
from thunder_core.autodiff.partitioning.memory import within
from thunder_core.autodiff.partitioning.offload import offloadable, with_offloaded
from thunder_core.autodiff.partitioning.partition import curve_of
from thunder_core.autodiff.partitioning.recompute import POLICIES
from thunder_core.ir.program import compile_trace
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.trace import Trace
from thunder_core.ir.tree import map_leaves
from thunder_core.ir.verifier import verify
from thunder_core.passes.delete_last_use import with_deletions

WIDTH, ROWS = 32, 512
VALUE = WIDTH * ROWS * 4


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of this test are large enough."""
    monkeypatch.setattr(offload, "_SMALLEST", VALUE)
    monkeypatch.setattr(offloadable, "__kwdefaults__", {"smallest": VALUE})


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.sigmoid(self.linear(x))


def joint_of(model: nn.Module, x: torch.Tensor, device: str = "cuda:0") -> Joint:
    """The joint trace of a model as on a device that this machine may lack."""
    compiled = thunder.jit(model, executors=[])
    compiled(x)
    program = compiled_program(compiled).entries[-1].program.differentiated
    assert program is not None

    def moved(leaf: Any) -> Any:
        return replace(leaf, device=torch.device(device)) if isinstance(leaf, TensorProxy) else leaf

    joint = program.joint
    trace = joint.trace
    inputs, output = tuple(map(moved, trace.inputs)), map_leaves(moved, trace.output)
    trace = replace(trace, inputs=inputs, symbols=tuple([op.map_leaves(moved) for op in trace.symbols]), output=output)
    tensors = {name: tuple(map(moved, getattr(joint, name))) for name in ("cotangents", "differentiable")}
    return replace(joint, trace=trace, **tensors)


def names(trace: Trace) -> list[str]:
    return [op.symbol.name.rpartition(".")[2] for op in trace.symbols]


def model() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Sequential(*[Layer() for _ in range(6)]), torch.randn(ROWS, WIDTH)


def offloaded(joint: Joint) -> Partitioned:
    partitioned = curve_of(Dependence.of(joint), POLICIES["none"]).first.partitioned
    return with_offloaded(partitioned, offloadable(partitioned))


def test_what_cannot_be_recomputed_away_is_offloaded() -> None:
    curve = curve_of(Dependence.of(joint_of(*model())), POLICIES["cheap"])
    least = curve.points[-1].peak.bytes
    found = within(least - VALUE, curve)
    assert found.memory is not None
    assert found.offloaded >= VALUE
    assert found.memory.peak <= least - VALUE
    with pytest.raises(thunder.MemoryBudgetError) as raised:
        curve.fastest(1)
    assert raised.value.least <= least - VALUE
    lowest = curve.fastest(raised.value.least)
    assert lowest.peak.bytes == raised.value.least
    assert lowest.partitioned.offloaded >= found.offloaded


def test_forward_has_one_copy_on_its_way_and_backward_prefetches() -> None:
    found = offloaded(joint_of(*model()))
    for trace in (found.forward, found.backward):
        verify(trace)
    forward, backward = names(found.forward), names(found.backward)
    count = forward.count("offload")
    assert count == found.offloaded // VALUE >= 5
    assert forward[-1] == "offloaded"
    order = [name for name in backward if name.startswith("prefetch")]
    assert order == ["prefetch", *["prefetched", "prefetch"] * (count - 1), "prefetched"]
    assert backward[0] == "prefetch"
    hosts = [proxy for proxy in found.saved if isinstance(proxy, TensorProxy) and proxy.device.type == "cpu"]
    assert len(hosts) == count


def test_values_on_the_cpu_stay() -> None:
    partitioned = curve_of(Dependence.of(joint_of(*model(), device="cpu")), POLICIES["none"]).first.partitioned
    assert offloadable(partitioned) == ()


def test_inputs_and_results_stay() -> None:
    class Exponential(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.exp(x)

    joint = joint_of(Exponential(), torch.randn(ROWS, WIDTH, requires_grad=True))
    assert offloadable(curve_of(Dependence.of(joint), POLICIES["none"]).first.partitioned) == ()


def test_gradients_are_those_of_eager() -> None:
    """The ops, run on the CPU, where copies are made at once."""
    module, x = model()
    joint = joint_of(module, x)
    found = offloaded(joint)

    def here(trace: Trace) -> Trace:
        def moved(leaf: Any) -> Any:
            if isinstance(leaf, TensorProxy):
                return replace(leaf, device=torch.device("cpu"))
            return torch.device("cpu") if isinstance(leaf, torch.device) else leaf

        ops = [op.map_leaves(moved) for op in trace.symbols]
        inputs, output = tuple(map(moved, trace.inputs)), map_leaves(moved, trace.output)
        return with_deletions(replace(trace, inputs=inputs, symbols=tuple(ops), output=output))

    values = {proxy.name: x for proxy in joint.primals} | {
        f"module_{name.replace('.', '_')}": parameter.detach() for name, parameter in module.named_parameters()
    }
    inputs = [values[proxy.name] for proxy in joint.primals]
    results = compile_trace(here(found.forward))(*inputs)
    gradients = compile_trace(here(found.backward))(*results[found.outputs :], torch.ones(ROWS, WIDTH))
    module(x).sum().backward()
    expected = {f"module_{name.replace('.', '_')}": p.grad for name, p in module.named_parameters()}
    assert len(gradients) == len(expected)
    for proxy, gradient in zip(joint.differentiable, gradients, strict=True):
        assert torch.equal(gradient, expected[proxy.name])

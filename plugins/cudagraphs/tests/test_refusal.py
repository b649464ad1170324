"""What is not captured, and why."""

from __future__ import annotations

import pytest
import torch
from graphed_programs import ungraphed
from recording import RecordingBackend
from torch import nn

import thunder
from thunder_core.errors import TransformError
from thunder_core.passes.transform import Phase, TransformContext
from thunder_plugin_cudagraphs import CUDAGraphs, ProgramStatistics, statistics
from thunder_plugin_cudagraphs.refusal import why_not

pytestmark = pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Router(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def seeded(x):
    torch.manual_seed(3)
    return torch.rand_like(x) + x


def chosen(x):
    return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


CASES = {
    "views": (lambda x: x.t(), "it computes nothing"),
    "seeds": (seeded, "has effects"),
    "chooses": (chosen, "decides on the host"),
    "compares": (lambda x: (x + 1, torch.equal(x, x * 1)), "returns a value to the host"),
    "sparse": (lambda x: (x * 2).to_sparse().to_dense(), "sparse"),
    "function": (lambda x: Twice.apply(x), "Python function"),
}


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("name", CASES)
def test_programs(name: str) -> None:
    function, reason = CASES[name]
    compiled = thunder.jit(function, transforms=[CUDAGraphs(warmup=0)])
    x = torch.rand(3, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), function(x))
    (found,) = statistics(compiled)
    assert found.refused is not None
    assert reason in found.refused
    assert found.refused in str(thunder.explain(compiled).notes)
    assert (found.captures, found.graphs, found.replays) == (0, 0, 0)


def test_the_cpu() -> None:
    compiled = thunder.jit(lambda x: x + 1, transforms=["cudagraphs"])
    compiled(torch.ones(2))
    (found,) = statistics(compiled)
    assert found.refused is not None
    assert "cpu, which has no CUDA graphs" in found.refused
    assert "torch.add" in str(thunder.last_traces(compiled)[-1])


@pytest.mark.usefixtures("backend")
def test_what_autograd_records() -> None:
    model = nn.Sequential(nn.Linear(2, 2), Router())
    compiled = thunder.jit(model, transforms=[CUDAGraphs(warmup=0)])
    compiled(torch.ones(1, 2)).sum().backward()
    assert any(one.refused and "autograd records" in one.refused for one in statistics(compiled))


@pytest.mark.usefixtures("backend")
def test_trusted_functions() -> None:
    compiled = thunder.jit(lambda x: Twice.apply(x) + 1, transforms=[CUDAGraphs(warmup=0, trust=("Function_apply",))])
    compiled(torch.ones(2))
    (found,) = statistics(compiled)
    assert found.refused is None, found
    assert found.replays == 1


@pytest.mark.usefixtures("backend")
def test_phases() -> None:
    model = nn.Linear(2, 2)
    compiled = thunder.jit(model, transforms=[{"cudagraphs": {"phases": ["inference"], "warmup": 0}}])
    for _ in range(3):
        compiled(torch.ones(1, 2)).sum().backward()
        with torch.no_grad():
            compiled(torch.ones(1, 2))
    replays = {one.phase: one.replays for one in statistics(compiled)}
    assert replays == {"forward": 0, "backward": 0, "inference": 3}


@pytest.mark.usefixtures("backend")
def test_backward_after_a_forward_without_a_graph() -> None:
    compiled = thunder.jit(
        nn.Sequential(nn.Linear(2, 2), nn.GELU()), transforms=[CUDAGraphs(warmup=0, phases=("backward",))]
    )
    for _ in range(3):
        compiled(torch.ones(1, 2)).sum().backward()
    found = next(one for one in statistics(compiled) if one.phase == "backward")
    assert ungraphed(found) == {"forward ran without a graph": 3}


def test_conflicts() -> None:
    from thunder_core.passes.transform import Transform

    class Other(Transform):
        name = "line_timing"
        place = CUDAGraphs.place

    with pytest.raises(TransformError, match="conflicts with 'line_timing'"):
        thunder.jit(lambda x: x, transforms=[CUDAGraphs(), Other()])(torch.ones(1))


def test_several_devices(backend: RecordingBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    from thunder_plugin_cudagraphs import device as devices

    monkeypatch.setitem(devices.BACKENDS, "meta", lambda device: backend)
    compiled = thunder.jit(lambda x, y: (x + 1, y + 1))
    compiled(torch.ones(2), torch.ones(2, device="meta"))
    reason = why_not(thunder.last_traces(compiled)[-1])
    assert reason is not None
    assert "works on meta, and other operations on cpu" in reason


def test_a_refused_trace_stays_as_it_is() -> None:
    compiled = thunder.jit(lambda x: x + 1)
    compiled(torch.ones(2))
    trace = thunder.last_traces(compiled)[-1]
    context = TransformContext(Phase.INFERENCE)
    assert CUDAGraphs().run(trace, context) is trace
    assert isinstance(context.notes[0], ProgramStatistics)


def test_only_compiled_programs_have_statistics() -> None:
    with pytest.raises(TypeError, match=r"is not a result of thunder\.jit"):
        statistics(nn.Linear(1, 1))

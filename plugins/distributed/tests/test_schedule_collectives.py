"""Where collectives and waits stand in programs: lines with a fake process group of eight ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fully_shard_cases import Net, sharded
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import thunder
from thunder_core.ir.symbol import Tag


@pytest.fixture(autouse=True)
def fake_group() -> Iterator[None]:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
    yield
    dist.destroy_process_group()


def trained(again: bool, **options: Any) -> Any:
    compiled = thunder.jit(sharded(Net(16), reshard_after_forward=again), executors=[], **options)
    compiled(torch.ones(5, 4)).sum().backward()
    return compiled


def kinds(trace: Any) -> list[str]:
    """``gather``, ``scatter``, ``wait`` and ``compute`` for the lines, without repetitions."""
    found: list[str] = []
    for line in trace.symbols:
        if Tag.COLLECTIVE in line.symbol.tags:
            kind = "gather" if "gather" in line.symbol.name else "scatter"
        elif Tag.WAIT in line.symbol.tags:
            kind = "wait"
        elif Tag.SHAPE in line.symbol.tags or not line.outputs():
            continue
        else:
            kind = "compute"
        if not found or found[-1] != kind:
            found.append(kind)
    return found


def test_forward_gathers_one_group_ahead() -> None:
    forward = kinds(thunder.last_traces(trained(True))[-1])
    assert forward[:5] == ["gather", "wait", "compute", "gather", "wait"], forward  # two, then the third
    assert forward.count("gather") == 2, forward


def test_backward_gathers_one_group_ahead() -> None:
    backward = kinds(thunder.last_backward_traces(trained(True))[-1])
    assert [kind for kind in backward if kind != "scatter"][:4] == ["gather", "wait", "compute", "gather"], backward


def test_nothing_is_gathered_in_backward_that_was_kept() -> None:
    assert "gather" not in kinds(thunder.last_backward_traces(trained(False))[-1])


def test_gradients_are_waited_for_before_the_next_are_reduced() -> None:
    """So that gradients of two groups at most are in memory as a whole."""
    backward = kinds(thunder.last_backward_traces(trained(True))[-1])
    scatters = [index for index, kind in enumerate(backward) if kind == "scatter"]
    assert len(scatters) == 4, backward  # of two blocks, and of the last layer and the first, which are of one group
    for before, after in itertools.pairwise(scatters):
        assert "compute" in backward[before:after], backward
        assert backward[after - 1] == "wait", backward
    assert backward[-2:] == ["scatter", "wait"], backward


class Ends(torch.nn.Module):
    """The first layer and the last are of one group of parameters, that of the whole module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Embedding(32, 16)
        self.block = torch.nn.Linear(16, 16)
        self.last = torch.nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.block(self.first(x)).sin())


def reductions(mesh: Any = None) -> list[tuple[str, list[tuple[int, ...]]]]:
    """The reductions of backward of `Ends`, trained in bfloat16, in order: operator, and the shapes that it reads."""
    model = Ends()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in (model.block, model):
        fully_shard(module, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    compiled = thunder.jit(model, executors=[])
    compiled(torch.arange(5)).sum().backward()
    backward = thunder.last_backward_traces(compiled)[-1]
    lines = [line for line in backward.symbols if Tag.COLLECTIVE in line.symbol.tags]
    assert {proxy.dtype for line in lines for proxy in line.inputs()} == {torch.float32}
    return [(line.symbol.name, [proxy.shape for proxy in line.inputs()]) for line in lines]


def test_gradients_that_are_computed_far_apart_are_reduced_apart() -> None:
    """So that the gradients of the first layer and of the last are not in memory at once."""
    assert [shapes for _, shapes in reductions()] == [[(8, 16), (8,)], [(16, 16), (16,)], [(32, 16)]]


def test_gradients_are_reduced_among_replicas_as_early() -> None:
    found = reductions(init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicas", "shards")))
    assert [shapes for name, shapes in found if "scatter" in name] == [[(8, 16), (8,)], [(16, 16), (16,)], [(32, 16)]]
    assert [shapes for name, shapes in found if "all_reduce" in name] == [[(2, 16), (2,)], [(4, 16), (4,)], [(8, 16)]]
    assert ["scatter" in name for name, _ in found] == [True, False] * 3


def test_all_that_is_gathered_is_waited_for() -> None:
    compiled = trained(True)
    for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
        collectives = [line for line in trace.symbols if Tag.COLLECTIVE in line.symbol.tags]
        started = [proxy.name for line in collectives for proxy in line.outputs()]
        waited = [line.args[0].name for line in trace.symbols if Tag.WAIT in line.symbol.tags]
        assert sorted(started) == sorted(waited)


class Shifted(torch.nn.Module):
    """Backward could compute a large sum again, from the shift, and would rather save a small one."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = torch.nn.Parameter(torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x + self.shift).sin()


@pytest.mark.parametrize("recompute", ["none", "cheap", "aggressive"])
def test_collectives_do_not_depend_on_the_size_of_a_batch(recompute: str) -> None:
    found = []
    for rows in (1, 1 << 19):
        model = fully_shard(Shifted(), reshard_after_forward=True)
        compiled = thunder.jit(model, executors=[], recompute=recompute)
        compiled(torch.ones(rows, 16, dtype=torch.bfloat16)).sum().backward()
        traces = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
        lines = [line for trace in traces for line in trace.symbols if Tag.COLLECTIVE in line.symbol.tags]
        found.append([line.symbol.name for line in lines])
    assert found[0] == found[1]
    assert len(found[0]) == 2


def test_a_cast_of_a_gathered_parameter_is_not_kept() -> None:
    model = sharded(Net(16), reshard_after_forward=True)
    compiled = thunder.jit(model, executors=[])
    with torch.autocast("cpu", torch.bfloat16):
        result = compiled(torch.ones(5, 4))
    result.sum().backward()
    backward = thunder.last_backward_traces(compiled)[-1]
    assert {proxy.shape for proxy in backward.inputs if proxy.dtype is torch.bfloat16}.isdisjoint({(32, 16), (16, 32)})
    assert kinds(backward).count("gather") == 2


def test_without_the_transform_lines_stay_where_they_were_recorded() -> None:
    compiled = trained(False, transforms=[{"distributed.schedule_collectives": {"enabled": False}}])
    assert kinds(thunder.last_traces(compiled)[-1]) == ["gather", "wait", "compute"] * 3


def test_values_are_not_read_after_collectives() -> None:
    """A rank whose value leads to another program would gather once more than the others."""
    model = sharded(Net(16))

    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = model(x)
        return y * 2 if y.sum() > 0 else y

    with pytest.raises(thunder.DataDependentError, match=r"communicates before it|gather"):
        thunder.jit(program)(torch.ones(5, 4))
    assert thunder.jit(lambda x: model(x * 2 if x.sum() > 0 else x))(torch.ones(5, 4)).shape == (5, 4)

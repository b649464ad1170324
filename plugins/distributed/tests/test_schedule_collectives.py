"""Where collectives and waits stand in programs: lines with a fake process group of eight ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fully_shard_cases import Net, parts, sharded
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import thunder
from thunder_core.ir.symbol import Tag
from thunder_plugin_distributed.hardware import HARDWARE, Link
from thunder_testing.processes import fake_process_group


@pytest.fixture(autouse=True)
def fake_group() -> Iterator[None]:
    with fake_process_group(8):
        yield


def trained(again: bool, *transforms: Any) -> Any:
    compiled = thunder.jit(sharded(Net(16), reshard_after_forward=again), executors=[], transforms=transforms)
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


@pytest.mark.slow
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


def _gathers(compiled: Any) -> tuple[int, int]:
    """The number of gathers of forward and of backward."""
    traces = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    forward, backward = [sum("gather" in line.symbol.name for line in trace.symbols) for trace in traces]
    return forward, backward


def _budget(bytes: int) -> dict[str, Any]:
    return {"distributed.regather_parameters": {"memory_budget": bytes}}


def _gathered_bytes(*modules: torch.nn.Module) -> int:
    """Eight ranks gather equal numbers of rows."""
    parameters = [parameter for module in modules for parameter in module.parameters()]
    return sum(-(-len(parameter) // 8) * 8 * parameter[0].numel() * 4 for parameter in parameters)


_BLOCK = _gathered_bytes(Net(16).blocks[0])
_ENDS = _gathered_bytes(Net(16).embedding, Net(16).head)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.slow
def test_parameters_are_saved_for_backward_within_a_budget(again: bool) -> None:
    """From those that forward reads last: of the group of the first layer and the last, then of the last block."""
    forward, _ = _gathers(trained(again))
    repeated = [
        _gathers(trained(again, _budget(budget)))[1]
        for budget in (0, _ENDS - 1, _ENDS, _ENDS + _BLOCK, _ENDS + 2 * _BLOCK)
    ]
    assert repeated == [forward, forward, forward - 1, forward - 2, 0], (forward, repeated)


def test_the_last_layers_are_saved_first() -> None:
    backward = thunder.last_backward_traces(trained(True, _budget(_ENDS + _BLOCK)))[-1]
    gathered = {proxy.name for line in backward.symbols if "gather" in line.symbol.name for proxy in line.inputs()}
    assert gathered
    assert all("blocks_0" in name for name in gathered), gathered


def test_parameters_that_are_gathered_again_are_gathered_ahead() -> None:
    """Other transforms recognize the gathers though a configuration imports this one first."""
    compiled, plain = trained(True, _budget(0)), trained(True)
    for last in (thunder.last_traces, thunder.last_backward_traces):
        assert kinds(last(compiled)[-1]) == kinds(last(plain)[-1])


def test_the_choice_is_reported() -> None:
    compiled = trained(True, _budget(_ENDS))
    assert "3 gathers" in str(thunder.explain(compiled).notes)
    assert "are saved for backward, the others are repeated in it" in str(thunder.explain(compiled).notes)


def test_a_budget_that_is_negative_is_refused() -> None:
    with pytest.raises(thunder.ConfigError, match="memory_budget"):
        trained(True, _budget(-1))


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


class Counted(torch.nn.Module):
    """Divides by a count over all ranks, beside which it computes with a gathered parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (torch.nn.Linear(512, 512, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count = mask.sum()
        hidden = self.first(x).sin()
        count = functional_collectives.all_reduce(count, "sum", torch.distributed.group.WORLD)
        return self.third(self.second(hidden / count).sin())


def test_starts_of_gathers_do_not_depend_on_what_is_computed_behind_a_reduction() -> None:
    """Which is as much as takes as long: with a large batch less of the first layer than with a small one."""
    found = []
    for rows in (8, 32768):
        model = Counted()
        for layer in (model.first, model.second, model.third):
            fully_shard(layer)
        compiled = thunder.jit(fully_shard(model), executors=[])
        compiled(torch.ones(rows, 512), torch.ones(rows))
        lines = [line for line in thunder.last_traces(compiled)[-1].symbols if Tag.COLLECTIVE in line.symbol.tags]
        found.append([line.symbol.name for line in lines])
    assert found[0] == found[1]
    assert len(found[0]) == 4


@pytest.mark.slow
def test_a_cast_of_a_gathered_parameter_is_not_kept() -> None:
    model = sharded(Net(16), reshard_after_forward=True)
    compiled = thunder.jit(model, executors=[])
    with torch.autocast("cpu", torch.bfloat16):
        result = compiled(torch.ones(5, 4))
    result.sum().backward()
    backward = thunder.last_backward_traces(compiled)[-1]
    assert {proxy.shape for proxy in backward.inputs if proxy.dtype is torch.bfloat16}.isdisjoint({(32, 16), (16, 32)})
    assert kinds(backward).count("gather") == 2


def test_without_the_transform_ops_stay_where_they_were_recorded() -> None:
    compiled = trained(False, {"distributed.schedule_collectives": {"enabled": False}})
    assert kinds(thunder.last_traces(compiled)[-1]) == ["gather", "wait", "compute"] * 3


@pytest.mark.slow
def test_values_are_not_read_after_collectives() -> None:
    """A rank whose value leads to another program would gather once more than the others."""
    model = sharded(Net(16))

    def program(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = model(x)
        return y * 2 if y.sum() > 0 else y

    with pytest.raises(thunder.DataDependentError, match=r"communicates before it|gather"):
        thunder.jit(program)(torch.ones(5, 4))
    assert thunder.jit(lambda x: model(x * 2 if x.sum() > 0 else x))(torch.ones(5, 4)).shape == (5, 4)


QUICK = HARDWARE["h100"].model_copy(update={"inside": Link(latency=0, bandwidth=1e9)}).model_dump()
"""A machine whose collectives have no latency, so that the cost model gathers each part of a group separately."""
SLOW = HARDWARE["h100"].model_copy(update={"inside": Link(latency=1, bandwidth=1e9)}).model_dump()
"""A machine whose collectives have nothing but latency."""


def parts_of(model: torch.nn.Module, **options: Any) -> list[list[tuple[str, int]]]:
    """The collectives of forward and backward, in order: operator, and how many tensors it reads."""
    compiled = thunder.jit(model, executors=[], **options)
    compiled(torch.ones(5, 4)).sum().backward()
    traces = thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]
    return [
        [(line.symbol.name, len(line.inputs())) for line in trace.symbols if Tag.COLLECTIVE in line.symbol.tags]
        for trace in traces
    ]


def test_parameters_that_are_read_far_apart_are_gathered_apart() -> None:
    """Only where the bytes of a part take longer than another collective: the last layer is then gathered later."""
    model = sharded(Net(16), reshard_after_forward=True)
    forward, backward = parts_of(model, transforms=[{"distributed.schedule_collectives": {"hardware": QUICK}}])
    assert [count for _, count in forward] == [2, 6, 6, 2]
    assert [count for name, count in backward if "gather" in name] == [4, 6, 6]  # what nobody reads is not part
    assert [count for _, count in parts_of(model)[0]] == [4, 6, 6]


def test_small_gathers_start_further_ahead() -> None:
    """A norm does not compute long enough to cover the gather of what follows it."""
    compiled = thunder.jit(parts(Net(16), reshard_after_forward=True), executors=[])
    compiled(torch.ones(5, 4)).sum().backward()
    for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
        starts = {proxy.name: index for index, line in enumerate(trace.symbols)
                  if "gather" in line.symbol.name for proxy in line.outputs()}  # fmt: skip
        gathers = sorted(set(starts.values()))
        assert len(gathers) >= 6
        for start in gathers[1:]:
            names = [name for name, place in starts.items() if place == start]
            wait = min(index for index, line in enumerate(trace.symbols) if {p.name for p in line.inputs()} & {*names})
            assert any(
                "linear" in line.symbol.name or "matmul" in line.symbol.name for line in trace.symbols[start:wait]
            )


def test_the_limit_of_memory_holds_gathers_back() -> None:
    forward = kinds(thunder.last_traces(trained(True, {"distributed.schedule_collectives": {"ahead": 0}}))[-1])
    assert forward[:6] == ["gather", "wait", "compute"] * 2, forward
    assert forward.count("gather") == 3, forward


def test_every_wait_stands_before_the_first_reader() -> None:
    compiled = trained(True)
    for trace in (thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1]):
        pending: set[str] = set()
        for line in trace.symbols:
            if Tag.WAIT not in line.symbol.tags:
                assert pending.isdisjoint(proxy.name for proxy in line.inputs())
            pending -= {proxy.name for proxy in line.inputs()}
            if Tag.COLLECTIVE in line.symbol.tags:
                pending |= {proxy.name for proxy in line.outputs()}
        assert not pending


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.slow
def test_small_collectives_are_one(again: bool) -> None:
    transforms = [{"distributed.bucket_collectives": {"hardware": SLOW}}]
    alone = parts_of(parts(Net(16), reshard_after_forward=again))
    model = parts(Net(16), reshard_after_forward=again)
    together = parts_of(model, transforms=transforms)
    for before, after in zip(alone, together, strict=True):
        assert len(after) < len(before) / 2
        for kind in ("gather", "scatter"):
            counts = [sum(count for name, count in found if kind in name) for found in (before, after)]
            assert counts[0] == counts[1]
    report = thunder.jit(model, executors=[], transforms=transforms)
    report(torch.ones(5, 4)).sum().backward()
    assert "bucket_collectives: " in str(thunder.explain(report).notes)


@pytest.mark.parametrize("options", [{"hardware": QUICK}, {"largest": 0}, {"enabled": False}])
@pytest.mark.slow
def test_collectives_stay_alone(options: dict[str, Any]) -> None:
    """Where their bytes take longer than their latency, where buckets may have no bytes, or without the transform."""
    models = [parts(Net(16), reshard_after_forward=True) for _ in range(2)]
    assert parts_of(models[0]) == parts_of(models[1], transforms=[{"distributed.bucket_collectives": options}])

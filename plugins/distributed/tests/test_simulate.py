"""What is predicted of one rank of many equals theory; nothing is run, and weights take no memory."""

from __future__ import annotations

import itertools
import resource
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import ThunderError
from thunder_plugin_distributed.hardware import HARDWARE
from thunder_plugin_distributed.simulation.simulate import Simulation, simulate
from thunder_testing.pointwise import Pointwise

WIDTH = 64
LAYERS = 6
PARAMETERS = LAYERS * 8 * WIDTH * WIDTH * 4
"""Bytes of the parameters of `model`."""
BATCH = 16


class Layer(torch.nn.Module):
    """Two pairs of products, as attention and the feed-forward part of a transformer have."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((WIDTH, 2 * WIDTH), (2 * WIDTH, WIDTH)) * 2
        self.q, self.o, self.up, self.down = (torch.nn.Linear(*size, bias=False) for size in sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.o(torch.tanh(self.q(x)))
        return x + self.down(torch.relu(self.up(x)))


def model() -> torch.nn.Module:
    return torch.nn.Sequential(*[Layer() for _ in range(LAYERS)])


def arguments() -> tuple[Any, ...]:
    return (torch.ones(BATCH, WIDTH, requires_grad=True),), {}


def replicated(mesh: Any) -> Any:
    module = DistributedDataParallel(model(), process_group=mesh.get_group(0), init_sync=False)
    return module, *arguments()


def sharded(again: bool) -> Any:
    def make(mesh: Any) -> Any:
        module = model()
        for layer in module:
            fully_shard(layer, mesh=mesh, reshard_after_forward=again)
        return fully_shard(module, mesh=mesh, reshard_after_forward=again), *arguments()

    return make


def tensor_parallel(mesh: Any) -> Any:
    module = model()
    plan = {"q": ColwiseParallel(), "o": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel()}
    for layer in module:
        parallelize_module(layer, mesh["tp"], plan)
    return module, *arguments()


def step(make: Any, size: int, mesh: dict[str, int] | None = None, **options: Any) -> Simulation:
    return simulate(make, size, mesh or {}, HARDWARE["h100"], options={"executors": []}, **options)


def sent(found: Simulation) -> dict[tuple[str, str], int]:
    totals: dict[tuple[str, str], int] = {}
    for each in found.collectives:
        key = each.phase, each.kind
        totals[key] = totals.get(key, 0) + each.bytes
    return totals


@pytest.mark.parametrize("size", [2, 8])
def test_replicas_all_reduce_their_gradients(size: int) -> None:
    assert sent(step(replicated, size)) == {("backward", "all_reduce"): 2 * PARAMETERS * (size - 1) // size}


@pytest.mark.parametrize("size", [2, 8, 64])
@pytest.mark.slow
def test_shards_are_gathered_twice_and_gradients_scattered(size: int) -> None:
    part = PARAMETERS * (size - 1) // size
    gathered = {("forward", "all_gather"): part, ("backward", "all_gather"): part}
    assert sent(step(sharded(True), size)) == gathered | {("backward", "reduce_scatter"): part}
    del gathered["backward", "all_gather"]
    assert sent(step(sharded(False), size)) == gathered | {("backward", "reduce_scatter"): part}


@pytest.mark.slow
def test_a_layer_of_tensor_parallel_has_four_all_reduces() -> None:
    found = step(tensor_parallel, 1024, {"dp": 128, "tp": 8})
    activation = BATCH * WIDTH * 4
    part = 2 * LAYERS * 2 * activation * 7 // 8
    assert sent(found) == {("forward", "all_reduce"): part, ("backward", "all_reduce"): part}
    assert len(found.collectives) == 4 * LAYERS
    assert {found.axes[each.group] for each in found.collectives} == {"tp"}


@pytest.mark.slow
def test_memory_of_parameters_and_states_is_that_of_the_rank() -> None:
    found = step(sharded(True), 8)
    assert found.memory.parameters == PARAMETERS // 8
    assert found.memory.optimizer == 2 * PARAMETERS // 8
    assert step(sharded(True), 8, optimizer="sgd").memory.optimizer == 0
    assert step(sharded(True), 8, train=False).memory.optimizer == 0


@pytest.mark.slow
def test_peak_holds_whole_parameters_that_backward_keeps() -> None:
    kept, again = step(sharded(False), 8).memory, step(sharded(True), 8).memory
    assert kept.programs - again.programs >= PARAMETERS // 2
    assert again.programs > PARAMETERS // LAYERS  # one layer's at least


def test_regions_hold_no_values_of_earlier_layers() -> None:
    """Gradients of weights are computed before the reductions that they wait for, in the region of their layer."""

    class Gated(Layer):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.down(torch.nn.functional.silu(self.up(x)) * self.q(x))

    def make(mesh: Any) -> Any:
        module = torch.nn.Sequential(*[Gated() for _ in range(2 * LAYERS)])
        for layer in module:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
        module = fully_shard(module, mesh=mesh, reshard_after_forward=False)
        return module, (torch.ones(100 * BATCH, WIDTH, requires_grad=True),), {}

    plain, fused = [
        simulate(make, 2, {}, HARDWARE["h100"], options={"executors": executors}).memory.programs
        for executors in ([], [Pointwise()])
    ]
    assert fused <= 1.05 * plain


def test_modules_of_pytorch_have_no_line_at_the_peak() -> None:
    def make(mesh: Any) -> Any:
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()), (torch.ones(2, 8),), {}

    assert step(make, 2).memory.location is None


def test_inference_of_a_function_has_the_peak_of_its_values() -> None:
    def make(mesh: Any) -> Any:
        return lambda x: (x + 1).sin().sum(), (torch.ones(1000),), {}

    found = step(make, 2, train=False)
    assert found.collectives == ()
    assert found.memory.programs == 2 * 4000
    assert found.times.exposed == 0


@pytest.mark.slow
def test_waiting_is_exposed_where_links_are_slow() -> None:
    slow = HARDWARE["h100"].model_copy(update={"inside": HARDWARE["h100"].inside.model_copy(update={"bandwidth": 1e6})})
    fast, late = step(sharded(True), 8), simulate(sharded(True), 8, {}, slow, options={"executors": []})
    assert late.times.compute == fast.times.compute
    assert late.times.exposed > 100 * fast.times.exposed
    assert late.times.communication >= late.times.exposed
    assert late.times == simulate(sharded(True), 8, {}, slow, options={"executors": []}).times


def in_parts(mesh: Any) -> Any:
    module = model()
    for layer in module:
        for part in layer.children():
            fully_shard(part, mesh=mesh)
    return fully_shard(module, mesh=mesh), *arguments()


@pytest.mark.parametrize("make", [sharded(True), sharded(False), in_parts])
@pytest.mark.parametrize("size", [2, 64])
@pytest.mark.slow
def test_a_scheduled_program_waits_less(make: Any, size: int) -> None:
    """By the cost model, for gathers that rise within a limit of memory."""

    def waiting(*transforms: Any) -> float:
        options = {"executors": [], "transforms": transforms}
        return simulate(make, size, {}, HARDWARE["h100"], options=options).times.exposed

    unscheduled = waiting({"distributed.schedule_collectives": {"enabled": False}})
    assert waiting() < unscheduled
    assert waiting({"distributed.bucket_collectives": {}}) < unscheduled


@pytest.mark.slow
def test_a_curve_trades_memory_for_time() -> None:
    def make(mesh: Any) -> Any:
        return model(), (torch.ones(4096, WIDTH),), {}

    found = step(make, 2, curve=True)
    first, *others = found.curve
    assert (first.peak, first.seconds, first.added) == (found.memory.peak, found.times.step, 0.0)
    assert others
    for before, after in itertools.pairwise(found.curve):
        assert after.peak < before.peak
        assert after.seconds >= before.seconds
    assert others[-1].recomputed > first.recomputed
    budget = others[-1].peak - found.memory.parameters - found.memory.optimizer
    options = {"executors": [], "memory": budget + found.memory.parameters + 4096 * WIDTH * 4}
    assert simulate(make, 2, {}, HARDWARE["h100"], options=options).memory.peak == others[-1].peak


def test_a_program_without_gradients_has_no_curve() -> None:
    def make(mesh: Any) -> Any:
        return (lambda x: x.sin()), (torch.ones(4),), {}

    assert step(make, 2, curve=True).curve == ()


def test_large_weights_take_no_memory() -> None:
    def make(mesh: Any) -> Any:
        return torch.nn.Linear(2**16, 2**14), (torch.ones(2, 2**16),), {}

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = step(make, 4)
    assert found.memory.parameters > 4 * 2**30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # in KiB: less than 1 GiB


@pytest.mark.parametrize(
    ("size", "mesh", "rank", "problem"),
    [
        (8, {"dp": 4}, 0, "the mesh dp=4 has 4 ranks, but the world size is 8"),
        (8, {}, 8, "rank 8 is out of range for 8 ranks"),
    ],
)
def test_a_mesh_that_does_not_fit_is_an_error(size: int, mesh: dict[str, int], rank: int, problem: str) -> None:
    with pytest.raises(thunder.OptionError, match=problem):
        step(replicated, size, mesh, rank=rank)


def test_a_process_group_that_is_there_is_an_error() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ThunderError, match="a process group is already initialized"):
            step(replicated, 2)
    finally:
        dist.destroy_process_group()


def test_a_program_that_eager_pytorch_runs_is_an_error() -> None:
    def make(mesh: Any) -> Any:
        return (lambda x: torch.nn.Identity()), *arguments()

    with pytest.raises(ThunderError, match="nothing was compiled, as eager PyTorch ran the program"):
        step(make, 2)
    assert not dist.is_initialized()


@pytest.mark.slow
def test_parameters_of_a_function_count() -> None:
    def closure(mesh: Any) -> Any:
        module, args, kwargs = sharded(True)(mesh)
        return lambda x: module(x).square().mean(), args, kwargs

    bare, named = [simulate(make, 4, {}, HARDWARE["h100"]).memory for make in (sharded(True), closure)]
    assert (named.parameters, named.optimizer) == (bare.parameters, bare.optimizer)
    assert named.parameters == PARAMETERS / 4


def test_a_program_that_raises_is_an_error() -> None:
    def wrong(mesh: Any) -> Any:
        module, _, kwargs = sharded(True)(mesh)
        return module, (torch.ones(BATCH, WIDTH + 1),), kwargs

    with pytest.raises(ThunderError, match="raises an exception in this call"):
        simulate(wrong, 4, {}, HARDWARE["h100"])

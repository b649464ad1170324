"""DTensor and `parallelize_module` in two processes, and in one; the cases are in `tensor_parallel_cases`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tensor_parallel_cases import CASES, EAGER_FAILS, FUNCTIONS
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import thunder
from thunder_core.ir.effects import WAITS, Effects
from thunder_testing.processes import fake_process_group, process_suite

MODULE = "tensor_parallel_cases"

test_two_processes = pytest.mark.battery(process_suite(MODULE, [name for name in CASES if name not in EAGER_FAILS]))

ALONE = ("from_local and to_local", "redistribute", "linear, partial sums", "parallel_loss_inside")
OTHERS = (*FUNCTIONS, "results_that_are_distributed", "inputs_and_outputs_of_modules")
test_one_process = pytest.mark.slow(process_suite(MODULE, ALONE, processes=1))
test_others_in_one_process = pytest.mark.battery(
    process_suite(MODULE, [name for name in OTHERS if name not in ALONE], processes=1)
)


@pytest.fixture
def fake_group() -> Iterator[None]:
    with fake_process_group():
        yield


@pytest.mark.usefixtures("fake_group")
@pytest.mark.slow
def test_backward_ops_that_communicate_have_the_channel_of_their_group() -> None:
    layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = thunder.jit(parallelize_module(layers, init_device_mesh("cpu", (2,)), plan), executors=[])
    model(torch.ones(2, 4, requires_grad=True)).sum().backward()
    lines = [line for line in thunder.last_backward_traces(model)[-1].symbols if not line.effects.pure]
    assert [line.symbol.name for line in lines] == [
        f"torch.ops._c10d_functional.{name}" for name in ("all_reduce", "wait_tensor")
    ]
    assert [line.effects for line in lines] == [Effects(channels=("0",)), Effects(channels=(WAITS,))]
    (found,) = [each for each in thunder.explain(model).entries[-1].collectives if each.phase == "backward"]
    assert (found.kind, found.group, found.ranks) == ("all_reduce", "0", 2)


class Attention(torch.nn.Module):
    """Three column-wise parallel layers that read one tensor, and a row-wise parallel one."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.result = (torch.nn.Linear(16, 16, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.result(self.query(x).sin() * self.key(x).cos() + self.value(x))


@pytest.mark.usefixtures("fake_group")
def test_sums_of_gradients_are_reduced_while_those_of_weights_are_computed() -> None:
    """In backward: one reduction for three layers, between the products that it reads and the others."""
    columns = dict.fromkeys(("query", "key", "value"), ColwiseParallel())
    layers = torch.nn.Sequential(*[Attention() for _ in range(3)])
    mesh = init_device_mesh("cpu", (2,))
    for layer in layers:
        parallelize_module(layer, mesh, {**columns, "result": RowwiseParallel()})
    model = thunder.jit(layers, executors=[], config="thunder:default")
    model(torch.ones(4096, 16)).square().sum().backward()
    (note,) = [note for note in thunder.explain(model).entries[-1].notes if note.startswith("merge_collectives")]
    assert note == "merge_collectives: 4 collectives less, because sums are reduced"
    order = []
    for line in thunder.last_backward_traces(model)[-1].symbols:
        if line.symbol.name.endswith((".mm", "all_reduce", "wait_tensor")):
            order.append(line.symbol.name.rpartition(".")[2])
    assert order.count("all_reduce") == 2  # the gradient of the input is not computed
    for start in [place for place, name in enumerate(order) if name == "all_reduce"]:
        assert order[start - 3 : start] == ["mm"] * 3
        assert order[start + 1 : order.index("wait_tensor", start)].count("mm") >= 3

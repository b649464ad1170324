"""Models under PyTorch's wrappers in one process: compiled against eager, without communication and copies for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import accumulation_cases
import data_parallel_cases
import fully_shard_cases
import pytest
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import thunder
from thunder_core.errors import UncacheableWarning
from thunder_testing.processes import group_of_one, process_suite

FULLY_SHARD = ("zero_3", "uneven", "mixed_precision", "activation_checkpointing", "state_dicts", "eager_calls_between")
ACCUMULATION = ("zero_3, plain", "mixed_precision", "accumulation", "gradients_of_inputs", "wrong_order")
DATA_PARALLEL = ("default_buckets", "accumulation", "unused", "buffers", "communication_hooks", "eager_calls_between")

test_fully_shard = pytest.mark.slow(process_suite("fully_shard_cases", FULLY_SHARD, processes=1))
test_accumulation = pytest.mark.slow(process_suite("accumulation_cases", ACCUMULATION, processes=1))
test_data_parallel = pytest.mark.slow(process_suite("data_parallel_cases", DATA_PARALLEL, processes=1))

# The kinds of models and calls that these have in common with others
test_others_of_fully_shard = pytest.mark.battery(
    process_suite(
        "fully_shard_cases",
        [
            *("zero_2", "sgd_and_clipping", "frozen", "unused", "shared", "other_dimension", "autocast"),
            *("backward_inside", "inference", "meta_initialization", "configuration_changes"),
        ],
        processes=1,
    )
)
test_others_of_accumulation = pytest.mark.battery(
    process_suite(
        "accumulation_cases",
        [
            *(name for name in accumulation_cases.OF_MODELS if name.startswith("zero") and name not in ACCUMULATION),
            *("some_modules", "functions_of_the_user", "modules_that_the_last_step_does_not_use", "inference_between"),
        ],
        processes=1,
    )
)
test_others_of_data_parallel = pytest.mark.battery(
    process_suite(
        "data_parallel_cases",
        [
            *("accumulated_gradients_stay_the_same_tensors", "checkpointing", "shared", "frozen", "unused_results"),
            *("static_graph", "evaluation_between", "autocast", "bfloat16", "two_dtypes", "bucket_views"),
            *("twice_in_one_loss", "inside_of_a_program"),
        ],
        processes=1,
    )
)


@pytest.fixture
def process_group() -> Iterator[None]:
    with group_of_one():
        yield


def names_of(model: Any) -> list[str]:
    """What the lines of forward and backward call, without the names of memory that is freed."""
    traces = (thunder.last_traces(model)[-1], thunder.last_backward_traces(model)[-1])
    return [line.symbol.name for trace in traces for line in trace.symbols]


def ops_of(model: Any, x: torch.Tensor) -> list[str]:
    compiled = thunder.jit(model, executors=[])
    compiled(x).sum().backward()
    return names_of(compiled)


@pytest.mark.usefixtures("process_group")
def test_a_replicated_module_has_the_ops_of_the_module() -> None:
    module, x = data_parallel_cases.with_buffers(), data_parallel_cases.data(0, images=True)
    assert ops_of(DistributedDataParallel(module), x) == ops_of(module, x)


@pytest.mark.usefixtures("process_group")
def test_bucket_views_are_filled_and_not_reduced() -> None:
    module = DistributedDataParallel(data_parallel_cases.Layers(), gradient_as_bucket_view=True)
    names = ops_of(module, data_parallel_cases.data(0))
    assert sum(name.endswith(".filled") for name in names) == 1
    assert not any(name.endswith((".summed", ".wait")) for name in names), names
    assert len({p.grad.untyped_storage().data_ptr() for p in module.parameters() if p.grad is not None}) == 1


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("again", [True, False])
def test_a_sharded_module_has_the_ops_of_the_module(again: bool) -> None:
    names = ops_of(fully_shard_cases.sharded(fully_shard_cases.Net(), reshard_after_forward=again), torch.ones(3, 4))
    assert names == ops_of(fully_shard_cases.Net(), torch.ones(3, 4))


@pytest.mark.usefixtures("process_group")
def test_gradients_of_a_sharded_module_are_divided_by_its_factor() -> None:
    def build() -> Any:
        model = fully_shard_cases.sharded(fully_shard_cases.Net())
        for module in (model, *model.blocks):
            module.set_gradient_divide_factor(3.0)
        return model

    fully_shard_cases.train(build)


@pytest.mark.usefixtures("process_group")
def test_a_sharded_module_casts_as_its_policy_says() -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model: Any = fully_shard(fully_shard_cases.Net(), mp_policy=policy)
    names = ops_of(model, torch.ones(3, 4))
    assert not any("thunder_distributed" in name for name in names), names
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())


@pytest.mark.usefixtures("process_group")
def test_a_write_to_a_sharded_parameter_is_lost_as_in_eager() -> None:
    class Clamped(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.clamp_(-0.1, 0.1)
            return super().forward(x)

    def outcomes(compile: Callable[[Any], Any]) -> list[torch.Tensor]:
        torch.manual_seed(3)
        model: Any = fully_shard(Clamped(4, 4))
        program = compile(model)
        results = [program(torch.ones(2, 4)).detach() for _ in range(3)]
        model.reshard()
        return [*results, model.weight.full_tensor().detach()]

    with pytest.warns(UncacheableWarning, match="a forward that writes to a parameter of fully_shard is not compiled"):
        actual = outcomes(lambda model: thunder.jit(model, executors=[]))
    torch.testing.assert_close(actual, outcomes(lambda model: model), rtol=0, atol=0)

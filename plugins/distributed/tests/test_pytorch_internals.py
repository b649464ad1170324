"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.nn import functional
from torch.nn.parallel import DistributedDataParallel

import thunder_plugin_distributed
from thunder_plugin_distributed import pytorch_internals
from thunder_plugin_distributed.accumulated_gradients import accumulate, accumulated, release
from thunder_plugin_distributed.fully_shard_plan import groups_of, plan_of
from thunder_plugin_distributed.partial_gradients import part_of
from thunder_plugin_distributed.pytorch_internals import NAMES
from thunder_plugin_distributed.recording.differentiable_collectives import OUTPUTS
from thunder_plugin_distributed.shards import reduce_others_later
from thunder_testing import private_names_suite


@pytest.fixture(autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def state() -> Any:
    return fully_shard.state(fully_shard(nn.Linear(3, 2)))


def sharded() -> Any:
    return groups_of(state())[0].fsdp_params[0]


def functional_collectives(operators: Any) -> None:
    name = dist.group.WORLD.group_name
    (gathered,) = operators.all_gather_into_tensor_coalesced([torch.ones(2)], 1, name)
    assert torch.equal(operators.wait_tensor(gathered), torch.ones(2))
    value = torch.ones(2)
    assert operators.wait_tensor(operators.all_reduce_(value, "sum", name)) is value


def hooks() -> None:
    module = fully_shard(nn.Linear(3, 2))
    found = fully_shard.state(module)
    assert type(found).__module__.endswith("_fsdp_state")
    assert [hook.__self__ for hook in module._forward_pre_hooks.values()] == [found]
    assert [hook.__name__ for hook in module._forward_hooks.values()] == ["_post_forward"]


def pending_gather() -> None:
    module = fully_shard(nn.Linear(3, 2))
    (group,) = groups_of(fully_shard.state(module))
    assert group._all_gather_result is None
    handle = module.unshard(async_op=True)
    assert group._all_gather_result is not None
    handle.wait()
    assert group._all_gather_result is None
    assert group.is_unsharded


def lazy_init(function: Any) -> None:
    found = state()
    assert found._is_root is None
    function(found)
    assert found._is_root is True


def groups() -> None:
    (group,) = groups_of(state())
    assert len(group.fsdp_params) == 2


def configuration() -> None:
    found = state()
    found._lazy_init()
    plan = plan_of(found)
    assert plan.problem == ""
    assert not plan.eager
    assert not any(gather.accumulates for gathers in plan.groups for gather in gathers)
    assert plan.policy is found._mp_policy


def parts() -> None:
    """PyTorch keeps the parts of parameters one after the other, in the order of the group."""
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
    module = fully_shard(nn.Linear(3, 2), mesh=mesh)
    module.set_requires_all_reduce(False)
    module(torch.ones(2, 3)).sum().backward()
    (group,) = groups_of(fully_shard.state(module))
    assert torch.equal(group._partial_reduce_output, torch.full((8,), 2.0))
    assert torch.equal(part_of(group, 1), torch.full((2,), 2.0))
    if hasattr(group, "_partial_reduce_output_layout"):
        assert list(group._partial_reduce_output_layout.values()) == [(0, 6), (6, 2)]


def accumulated_gradients() -> None:
    """PyTorch keeps the whole gradient where the plugin reads it, and reduces one that the plugin accumulated."""
    for policy, dtype in (
        (MixedPrecisionPolicy(), torch.float32),
        (MixedPrecisionPolicy(torch.bfloat16, torch.float32), torch.float32),
        (MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16), torch.bfloat16),
    ):
        module = fully_shard(nn.Linear(3, 2), mp_policy=policy)
        module.set_requires_gradient_sync(False)
        found = fully_shard.state(module)
        (group,) = groups_of(found)
        module(torch.ones(2, 3)).sum().backward()
        total = accumulated(group.fsdp_params[0])
        assert total is not None
        assert total.dtype == dtype
        assert any(gather.accumulates for gathers in plan_of(found).groups for gather in gathers)
        for sharded in group.fsdp_params:
            release(sharded)
            accumulate(sharded, torch.ones(sharded._orig_size, dtype=policy.param_dtype))
            accumulate(sharded, torch.ones(sharded._orig_size, dtype=policy.param_dtype))
        module.set_requires_gradient_sync(True)
        assert any(gather.accumulated for gathers in plan_of(found).groups for gather in gathers)
        other = nn.Parameter(torch.ones(1)) * 2
        other.register_hook(lambda gradient, found=found: reduce_others_later(found))
        other.sum().backward()
        for parameter in module.parameters():
            assert torch.equal(parameter.grad.to_local(), torch.full_like(parameter.to_local(), 2.0))
        assert not any(gather.accumulated for gathers in plan_of(found).groups for gather in gathers)


def from_local(function: Any) -> None:
    parameter = sharded().sharded_param
    made = function(torch.ones(2, 3), parameter._spec)
    assert type(made) is type(parameter.data)
    assert made.placements == parameter.placements


def apply_to_tensors(function: Any) -> None:
    doubled = function(lambda tensor: tensor * 2, {"a": [torch.ones(1)], "b": 3})
    assert doubled == {"a": [torch.tensor([2.0])], "b": 3}


def wrapper() -> DistributedDataParallel:
    return DistributedDataParallel(nn.Linear(3, 2))


def data_parallel() -> None:
    module = wrapper()
    assert not module._join_config.enable
    assert module._comm_hooks == []
    assert module._delay_all_reduce_params == []
    assert not module._use_python_reducer


def communication_hooks() -> None:
    """The name of a hook in Python is in a list, that of a built-in one only in the logging data."""
    python, built_in = wrapper(), wrapper()
    python.register_comm_hook(None, allreduce_hook)
    assert python._comm_hooks == [(allreduce_hook, None)]
    assert not wrapper()._get_ddp_logging_data().get("comm_hook")
    built_in._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    assert built_in._comm_hooks == []
    assert built_in._get_ddp_logging_data().get("comm_hook")


def hooks_of_tensors() -> None:
    parameter = nn.Parameter(torch.ones(1))
    assert not parameter._backward_hooks
    assert not parameter._post_accumulate_grad_hooks
    parameter.register_hook(lambda gradient: None)
    parameter.register_post_accumulate_grad_hook(lambda parameter: None)
    assert parameter._backward_hooks
    assert parameter._post_accumulate_grad_hooks


def callbacks(engine: Any) -> None:
    """One that backward queues is called when it has ended, and gradients are there."""
    found: list[Any] = []
    leaf = nn.Parameter(torch.ones(1))
    value = leaf * 2
    value.register_hook(lambda gradient: engine.queue_callback(lambda: found.append(leaf.grad)))
    value.sum().backward()
    assert found == [torch.tensor([2.0])]


def graph_tasks(current: Any) -> None:
    found: list[int] = []
    assert current() == -1
    for _ in range(2):
        value = nn.Parameter(torch.ones(1)) * 2
        value.register_hook(lambda gradient: found.append(current()))
        value.sum().backward()
    assert len(set(found)) == 2


def default_store(function: Any) -> None:
    function().set("key", "value")
    assert function().get("key") == b"value"


def coalescing(function: Any) -> None:
    """They take a group and a device; gloo does not coalesce."""
    with pytest.raises(RuntimeError, match=r"gloo does not .* (start|end)Coalescing"):
        function(dist.group.WORLD, torch.device("cpu"))


def timeout_of_group(_: Any) -> None:
    group = dist.new_group([0], timeout=timedelta(seconds=77))
    devices = pytorch_internals.devices_of_group(group)
    assert all(isinstance(device, torch.device) for device in devices)
    backend = pytorch_internals.backend_of_group(group, devices[0])
    assert pytorch_internals.timeout_of_backend(backend.options) == timedelta(seconds=77)


def differentiable(name: str) -> None:
    """It is an autograd.Function; if it writes an argument, ``OUTPUTS`` has its place, without the context."""
    cls = getattr(functional, name)
    assert issubclass(cls, torch.autograd.Function)
    names = list(inspect.signature(cls.forward).parameters)[1:]
    written = {"_Reduce_Scatter": "tensor", "_AlltoAll": "out_tensor_list", "_AlltoAllSingle": "output"}
    assert written.get(name) == (names[OUTPUTS[name]] if name in OUTPUTS else None)


CHECKS: dict[str, Callable[..., object]] = {
    "c10d_functional": functional_collectives,
    **{name.removeprefix("_"): partial(differentiable, name) for name in pytorch_internals.DIFFERENTIABLE},
    "generate_unique_id": lambda: importlib.import_module("torch.distributed._meta_registrations").generate_unique_id(),
    "source_rank": lambda: vars(dist.Work)["_source_rank"],
    "start_coalescing": coalescing,
    "end_coalescing": coalescing,
    "get_default_store": default_store,
    "backend_of_group": timeout_of_group,
    "devices_of_group": timeout_of_group,
    "timeout_of_backend": timeout_of_group,
    "fsdp_state": hooks,
    "pre_forward": hooks,
    "post_forward": hooks,
    "lazy_init": lazy_init,
    "is_root": lambda: state()._is_root is None,
    "get_fsdp_state": lambda: (module := fully_shard(nn.Linear(1, 1)))._get_fsdp_state() is fully_shard.state(module),
    "fsdp_param_group": groups,
    "fsdp_param_groups": groups,
    "all_gather_result": pending_gather,
    "mp_policy": configuration,
    "modules": configuration,
    "partial_reduce_output": parts,
    "partial_reduce_output_layout": parts,
    "all_reduce_hook": configuration,
    "reduce_scatter_comm": configuration,
    "all_gather_comm": configuration,
    "spec": configuration,
    "local_tensor": lambda: sharded().sharded_param._local_tensor.shape,
    "from_local_no_grad": from_local,
    "modules_to_run_forward": lambda: state()._modules_to_run_forward == set(),
    "has_sharded_grad_dtype_override": lambda: sharded()._has_sharded_grad_dtype_override is False,
    "unsharded_dtensor_spec": lambda: sharded()._unsharded_dtensor_spec is None,
    "tp_spec": lambda: "_tp_spec" in type(sharded()).__annotations__,
    "module_info": lambda: sharded()._module_info.param_name + str(sharded()._module_info.shared_modules),
    "sharded_local_tensor": lambda: sharded()._sharded_local_tensor.shape,
    "orig_size": lambda: sharded()._orig_size[0],
    "unsharded_param": accumulated_gradients,
    "fsdp_param": lambda kind: isinstance(sharded(), kind),
    "cast_output_dtype": lambda: state()._cast_output_dtype(1) == 1,
    "state_ctx": accumulated_gradients,
    "register_root_post_backward_final_callback": accumulated_gradients,
    "parameters": lambda: nn.Linear(1, 1)._parameters["weight"],
    "apply_to_tensors": apply_to_tensors,
    "default_first_bucket_bytes": lambda size: size == 2**20,
    "get_ddp_logging_data": communication_hooks,
    "comm_hooks": communication_hooks,
    "join_config": data_parallel,
    "delay_all_reduce_params": data_parallel,
    "use_python_reducer": data_parallel,
    "current_graph_task_id": graph_tasks,
    "execution_engine": callbacks,
    "backward_hooks": hooks_of_tensors,
    "post_accumulate_grad_hooks": hooks_of_tensors,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_distributed.__file__).parent])

"""What `fully_shard` was configured with, and what a program does by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from thunder_core.acquire.first_calls import EagerCallNeeded
from thunder_core.errors import UnsupportedError
from thunder_core.tracing.user_frames import user_location


@dataclass(frozen=True)
class Plan:
    """How one parameter is gathered and its gradient reduced.

    Attributes:
        again: backward gathers it again, as ``reshard_after_forward`` says.
        dimension: along which it is sharded.
        length: of the whole parameter, in the first dimension of the shards.
        size: how many ranks have shards.
        arguments: of `thunder_plugin_distributed.sharded_parameters.gather` after the shard.
    """

    again: bool
    dimension: int
    length: int
    size: int
    arguments: tuple[Any, ...]


def groups_of(state: Any) -> list[Any]:
    """The groups of parameters of a module: one, or as many as it has meshes since PyTorch 2.12."""
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def check_state(state: Any) -> None:
    """Refuse what a module was configured with that programs do not do."""
    if len(state._modules) > 1:
        _refuse("fully_shard of several modules at once", "apply it to a module that contains them")


def check_group(group: Any) -> None:
    """Refuse what a group of parameters was configured with that programs do not do.

    Raises:
        EagerCallNeeded: gradients are accumulated without communication, which PyTorch does with whole gradients.
        UnsupportedError: everything else.
    """
    if type(group.mesh_info).__name__ not in ("FSDPMeshInfo", "HSDPMeshInfo"):
        _refuse("replicate of torch.distributed._composable", "use DistributedDataParallel")
    if type(group.offload_policy).__name__ != "OffloadPolicy":
        _refuse("CPUOffloadPolicy", "call fully_shard without offload_policy")
    if group._all_reduce_hook is not None:
        _refuse("set_all_reduce_hook", "give fully_shard a mesh of two dimensions, with which it reduces both ways")
    if type(group._all_gather_comm).__name__ != "DefaultAllGather":
        _refuse("a custom all-gather", "leave set_custom_all_gather out")
    if type(group._reduce_scatter_comm).__name__ != "DefaultReduceScatter":
        _refuse("a custom reduce-scatter", "leave set_custom_reduce_scatter out")
    if not group.reduce_grads or not group.all_reduce_grads:
        raise EagerCallNeeded("gradients are accumulated without communication: set_requires_gradient_sync(False)")


def plan_of(group: Any, sharded: Any) -> Plan:
    """How a program gathers a parameter of a group, and reduces its gradient.

    Raises:
        EagerCallNeeded: calls before have left a gradient of the whole parameter, which PyTorch has to reduce.
        UnsupportedError: the parameter is one that programs do not gather.
    """
    _check_parameter(sharded)
    mesh = group.mesh_info
    dimension = sharded.fsdp_placement.dim
    size, ranks = mesh.shard_mesh_size, mesh.shard_process_group.group_name
    rows = sharded._orig_size[0]
    length = rows * size if dimension else rows
    replicas, count = "", size
    if hasattr(mesh, "replicate_process_group"):
        replicas, count = mesh.replicate_process_group.group_name, size * mesh.replicate_mesh_size
    operation, before, after = _division(group, sharded, count)
    arguments = (length, size, ranks, sharded.param_dtype, sharded.reduce_dtype, operation, before, after, replicas)
    return Plan(group.post_forward_mesh_info is not None, dimension, length, size, arguments)


def _check_parameter(sharded: Any) -> None:
    if sharded.is_dtensor:
        _refuse("a parameter that is sharded otherwise before fully_shard", "use one of both")
    if hasattr(sharded._sharded_local_tensor, "fsdp_pre_all_gather"):
        _refuse("a parameter with fsdp_pre_all_gather", "use plain parameters")
    if sharded.unsharded_accumulated_grad is not None or (
        hasattr(sharded, "_unsharded_param") and sharded._unsharded_param.grad is not None
    ):
        raise EagerCallNeeded("calls before accumulated gradients without communication, which are to be reduced now")


def _division(group: Any, sharded: Any, count: int) -> tuple[str, float, float]:
    """By which operation gradients are reduced, and what they are divided by before and after."""
    reduced = sharded.reduce_dtype or sharded.param_dtype or sharded.orig_dtype
    factor = group.gradient_divide_factor
    if reduced in (torch.float32, torch.bfloat16) and not group.force_sum_reduction_for_comms:
        return ("avg", 1.0, 1.0) if factor is None else ("sum", float(factor), 1.0)
    factor = float(count if factor is None else factor)
    if reduced in (torch.float32, torch.bfloat16):
        return "sum", 1.0, factor
    before = 1.0  # as FSDP2, about the square root, against overflow
    while factor % before == 0 and factor / before > before:
        before *= 2
    return "sum", before, factor / before


def _refuse(what: str, advice: str) -> NoReturn:
    raise UnsupportedError(
        f"{what} is not compiled", location=user_location(), advice=(advice, "leave the module to eager PyTorch")
    )

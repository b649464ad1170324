"""What `fully_shard` was configured with, as far as a program depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Gather:
    """How one parameter is gathered and its gradient reduced.

    Attributes:
        again: backward gathers it again, as ``reshard_after_forward`` says.
        dimension: along which it is sharded.
        spec: mesh, placements and metadata of the DTensor.
        trainable: it requires grad.
        length: of the whole parameter, in the first dimension of the shards.
        layout: of the parameter as a DTensor of tensor parallelism, which has what is gathered as its part; or None.
        arguments: of `thunder_plugin_distributed.sharded_parameters.gather` after shards and lengths.
    """

    again: bool
    dimension: int
    spec: Any
    trainable: bool
    length: int
    layout: Any
    arguments: tuple[Any, ...]

    @property
    def key(self) -> Any:
        """Parameters with equal ones are gathered together."""
        return self.trainable, self.arguments

    @property
    def size(self) -> int:
        """The number of ranks that have shards."""
        return int(self.arguments[0])

    @property
    def of_whole_shards(self) -> tuple[Any, ...]:
        """The arguments of `thunder_plugin_distributed.sharded_parameters.unsharded` after the shards."""
        _, _, *options, _, replicas = self.arguments
        return (*options, replicas)

    def is_kept(self, kept: torch.dtype) -> bool:
        """Whether the shard of a dtype is the parameter, and its gradient that of the shard."""
        dtype, reduce_dtype, _, before, after, replicas = self.of_whole_shards
        return not replicas and {dtype, reduce_dtype} <= {None, kept} and before == after == 1


@dataclass(frozen=True, slots=True)
class Plan:
    """How the parameters of one state of `fully_shard` are gathered.

    Attributes:
        groups: its groups of parameters.
        policy: its mixed precision policy.
        problem, advice: what programs cannot do, and what to do instead; empty if there is nothing.
        accumulates: gradients are not reduced in this call, or calls before left some that are to be reduced. PyTorch
            keeps these whole.
    """

    groups: tuple[tuple[Gather, ...], ...] = ()
    policy: Any = None
    problem: str = ""
    advice: str = ""
    accumulates: bool = False


def groups_of(state: Any) -> list[Any]:
    """The groups of parameters of a state: since PyTorch 2.12 as many as it has meshes, one before."""
    if hasattr(state, "_fsdp_param_groups"):
        groups: list[Any] = state._fsdp_param_groups
        return groups
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def plan_of(state: Any) -> Plan:
    """The plan for a state as it is now. Each call of a program compares it with that of the recording."""
    groups = groups_of(state)
    for group in groups:
        problem, advice = _problem(group)
        if problem:
            return Plan(problem=problem, advice=advice)
    if len(state._modules) > 1:
        return Plan(problem="fully_shard of a list of modules", advice="apply it to a module that contains them")
    if any(_accumulates(group) for group in groups):
        return Plan(accumulates=True)
    return Plan(tuple([_gathers(group) for group in groups]), state._mp_policy)


def _problem(group: Any) -> tuple[str, str]:
    """What of a group's configuration programs cannot do, and what to do instead."""
    mesh, after_forward = group.mesh_info, group.post_forward_mesh_info
    if after_forward is not None and after_forward.shard_mesh_size != mesh.shard_mesh_size:
        return "reshard_after_forward with a number of ranks", "give fully_shard reshard_after_forward=True or False"
    if type(group.offload_policy).__name__ != "OffloadPolicy" and group.device.type != "cpu":
        return f"fully_shard with CPUOffloadPolicy on {group.device.type}", "call fully_shard without offload_policy"
    if group._all_reduce_hook is not None:
        return "set_all_reduce_hook", "give fully_shard a mesh of two dimensions, for HSDP"
    if type(group._all_gather_comm).__name__ != "DefaultAllGather":
        return "an all-gather that is not PyTorch's default", "call fully_shard without set_custom_all_gather"
    if type(group._reduce_scatter_comm).__name__ != "DefaultReduceScatter":
        return "a reduce-scatter that is not PyTorch's default", "call fully_shard without set_custom_reduce_scatter"
    if getattr(group, "reduce_scatter_unused_params", False):
        return "reduce_scatter_unused_params", "leave it False: parameters without gradients keep grad=None"
    for sharded in group.fsdp_params:
        if getattr(sharded.mesh_info, "is_spmd_mesh", False):
            return "fully_shard with dp_mesh_dims", "give it the mesh of data parallelism, mesh['dp']"
        if hasattr(sharded._sharded_local_tensor, "fsdp_pre_all_gather"):
            return "a parameter with fsdp_pre_all_gather", "use plain parameters"
        if getattr(sharded, "_has_sharded_grad_dtype_override", False):
            return "a parameter with a grad_dtype", "leave Tensor.grad_dtype as it is, and use MixedPrecisionPolicy"
    return "", ""


def _accumulates(group: Any) -> bool:
    if not group.reduce_grads or not group.all_reduce_grads or group._partial_reduce_output is not None:
        return True
    return any(
        sharded.unsharded_accumulated_grad is not None
        or (hasattr(sharded, "_unsharded_param") and sharded._unsharded_param.grad is not None)
        for sharded in group.fsdp_params
    )


def _gathers(group: Any) -> tuple[Gather, ...]:
    mesh = group.mesh_info
    size, ranks = 1, ""
    if hasattr(mesh, "shard_process_group"):
        size, ranks = mesh.shard_mesh_size, mesh.shard_process_group.group_name
    other = getattr(mesh, "reduce_scatter_process_group", None)
    scatter = "" if other is None else other.group_name
    replicas, count = "", size
    if hasattr(mesh, "replicate_process_group"):
        replicas, count = mesh.replicate_process_group.group_name, size * mesh.replicate_mesh_size
    again = group.post_forward_mesh_info is not None
    found = []
    for sharded in group.fsdp_params:
        rows, dimension, parameter = sharded._orig_size[0], sharded.fsdp_placement.dim, sharded.sharded_param
        length = rows * size if dimension else rows
        # Since PyTorch 2.15 gradients are reduced in the parameter's dtype where the policy does not say it.
        reduced = getattr(sharded, "unsharded_grad_dtype", sharded.reduce_dtype)
        divided = _division(group, reduced or sharded.param_dtype or sharded.orig_dtype, count)
        arguments = (size, ranks, sharded.param_dtype, reduced, *divided, scatter, replicas)
        layout = _layout(sharded)
        found.append(Gather(again, dimension, parameter._spec, parameter.requires_grad, length, layout, arguments))
    return tuple(found)


def _layout(sharded: Any) -> Any:
    """The DTensorSpec that a parameter had before `fully_shard` was applied; None for a plain one."""
    if not sharded.is_dtensor:
        return None
    return sharded._unsharded_dtensor_spec if hasattr(sharded, "_unsharded_dtensor_spec") else sharded._tp_spec


def _division(group: Any, reduced: torch.dtype, count: int) -> tuple[str, float, float]:
    """By which operation gradients of a dtype are reduced, and what they are divided by before and after."""
    factor = group.gradient_divide_factor
    is_wide = reduced in (torch.float32, torch.bfloat16)
    if is_wide and not group.force_sum_reduction_for_comms:
        # the average of one rank, which NCCL may compute wrong, is its sum
        return ("avg" if count > 1 else "sum", 1.0, 1.0) if factor is None else ("sum", float(factor), 1.0)
    factor = float(count if factor is None else factor)
    before = 1.0
    while not is_wide and factor % before == 0 and factor / before > before:
        before *= 2  # as PyTorch does it: about the square root before, lest sums overflow
    return "sum", before, factor / before

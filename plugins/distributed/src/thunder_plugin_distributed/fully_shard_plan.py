"""The settings of `fully_shard` that a program depends on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from thunder_plugin_distributed.accumulated_gradients import accumulated, is_accumulating, layout_of, reduction_dtype
from thunder_plugin_distributed.partial_gradients import has_part, is_known, keeps_parts
from thunder_plugin_distributed.sharding import Sharding


@dataclass(frozen=True, slots=True)
class Gather:
    """How one parameter is gathered and its gradient reduced.

    Attributes:
        again: whether backward gathers it again, by ``reshard_after_forward``.
        dimension: the dimension along which it is sharded.
        spec: mesh, placements and metadata of the DTensor.
        trainable: whether it requires grad.
        length: the length of the whole parameter in the first dimension of the shards.
        layout: with tensor parallelism, the DTensorSpec of the parameter whose local tensor is gathered; else None.
        sharding: the ranks that have shards, and how gradients are reduced.
        accumulates: whether backward accumulates its gradient, without reducing it, or without reducing it among
            replicas.
        accumulated: the dtype of the accumulated gradient that backward reduces; None if there is none.
        adds_part: whether backward reduces, among replicas, a gradient that was reduced and scattered before.
    """

    again: bool
    dimension: int
    spec: Any
    trainable: bool
    length: int
    layout: Any
    sharding: Sharding
    accumulates: bool = False
    accumulated: torch.dtype | None = None
    adds_part: bool = False

    @property
    def key(self) -> Any:
        """Parameters with equal keys are gathered together."""
        return self.trainable, self.sharding

    def is_reduced(self, dtype: torch.dtype) -> bool:
        """Whether the gradient of the whole parameter is reduced, or cast, to that of a shard of this dtype."""
        return self.trainable and bool(self.sharding.operation) and not self.sharding.is_kept(dtype)


@dataclass(frozen=True, slots=True)
class Plan:
    """How the parameters of one state of `fully_shard` are gathered.

    Attributes:
        groups: its groups of parameters.
        policy: its mixed precision policy.
        problem, advice: the setting that programs do not support, with which eager PyTorch runs the call, and what to
            do instead; empty if there is none.
        eager: why eager PyTorch runs the call; empty if a program does.
        prepared: if gradients are accumulated, whether PyTorch's objects of whole parameters exist: without them, eager
            PyTorch would not reduce the gradients that programs accumulate.
    """

    groups: tuple[tuple[Gather, ...], ...] = ()
    policy: Any = None
    problem: str = ""
    advice: str = ""
    eager: str = ""
    prepared: bool = True


def groups_of(state: Any) -> list[Any]:
    """The groups of parameters of a state: one for each mesh since PyTorch 2.12, one in earlier versions."""
    if hasattr(state, "_fsdp_param_groups"):
        groups: list[Any] = state._fsdp_param_groups
        return groups
    return [] if state._fsdp_param_group is None else [state._fsdp_param_group]


def plan_of(state: Any) -> Plan:
    """The plan for the current configuration of a state. Each call compares it with that of the recording."""
    groups = groups_of(state)
    for group in groups:
        problem, advice = _problem(group)
        if problem:
            return Plan(problem=problem, advice=advice)
    if len(state._modules) > 1 and not hasattr(state, "_cast_output_dtype"):
        return Plan(
            problem="fully_shard of a list of modules, whose hooks this version of PyTorch calls once for all of them,",
            advice="apply it to a module that contains them",
        )
    eager = _eager_reason(state)
    if eager:
        return Plan(eager=eager)
    plan = Plan(tuple([_gathers(group) for group in groups]), state._mp_policy)
    kept = [
        sharded for group in groups if is_accumulating(group) or keeps_parts(group) for sharded in group.fsdp_params
    ]
    return replace(plan, prepared=all(hasattr(sharded, "_unsharded_param") for sharded in kept))


def _problem(group: Any) -> tuple[str, str]:
    """The setting of a group that programs do not support, and what to do instead."""
    mesh, after_forward = group.mesh_info, group.post_forward_mesh_info
    if after_forward is not None and after_forward.shard_mesh_size != mesh.shard_mesh_size:
        return (
            "reshard_after_forward with a number of ranks",
            "call fully_shard with reshard_after_forward=True or False",
        )
    policy = type(group.offload_policy).__name__
    if policy not in ("OffloadPolicy", "CPUOffloadPolicy"):
        return f"fully_shard with {policy}", "use OffloadPolicy or CPUOffloadPolicy"
    if group._all_reduce_hook is not None:
        return "set_all_reduce_hook", "call fully_shard with a two-dimensional mesh, for HSDP"
    # Those with memory of the process group send the same, from other memory.
    if type(group._all_gather_comm).__name__ not in ("DefaultAllGather", "ProcessGroupAllocAllGather"):
        return "an all-gather that is not PyTorch's default", "call fully_shard without set_custom_all_gather"
    if type(group._reduce_scatter_comm).__name__ not in ("DefaultReduceScatter", "ProcessGroupAllocReduceScatter"):
        return "a reduce-scatter that is not PyTorch's default", "call fully_shard without set_custom_reduce_scatter"
    if getattr(group, "reduce_scatter_unused_params", False):
        return "reduce_scatter_unused_params", "leave it False: parameters without gradients keep grad=None"
    for sharded in group.fsdp_params:
        if getattr(sharded.mesh_info, "is_spmd_mesh", False):
            return "fully_shard with dp_mesh_dims", "pass the mesh of data parallelism, mesh['dp']"
        if hasattr(sharded._sharded_local_tensor, "fsdp_pre_all_gather"):
            return "a parameter with fsdp_pre_all_gather", "use plain parameters"
        if getattr(sharded, "_has_sharded_grad_dtype_override", False):
            return "a parameter with a grad_dtype", "leave Tensor.grad_dtype as it is, and use MixedPrecisionPolicy"
    return "", ""


def _eager_reason(state: Any) -> str:
    """Why eager PyTorch runs calls of a state with its current configuration; empty if programs do."""
    accumulating = False
    for group in groups_of(state):
        if not is_known(group):
            return "eager PyTorch accumulated gradients of some parameters of a group without an all-reduce"
        accumulating |= is_accumulating(group)
        for sharded in group.fsdp_params:
            gradient: Any = accumulated(sharded)
            accumulating |= gradient is not None
            if gradient is not None and sharded.is_dtensor and gradient.placements != layout_of(sharded).placements:
                return "gradients of fully_shard are accumulated with other placements than their parameters"
    if accumulating and getattr(state._state_ctx, "manual_backward_finalization", False):
        return "gradients of fully_shard are accumulated until finalize_backward"
    return ""


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
    accumulates = is_accumulating(group)
    collected = accumulates or keeps_parts(group)
    offloads = type(group.offload_policy).__name__ == "CPUOffloadPolicy" and group.device.type != "cpu"
    device = str(group.device) if offloads else ""
    found = []
    for place, sharded in enumerate(group.fsdp_params):
        rows, dimension, parameter = sharded._orig_size[0], sharded.fsdp_placement.dim, sharded.sharded_param
        length = rows * size if dimension else rows
        reduced = reduction_dtype(sharded)
        sharding = Sharding(size, ranks, sharded.param_dtype, device)
        if accumulates:
            sharding = sharding.unreduced
        else:
            operation, divisors, last = _division(
                group, reduced or sharded.param_dtype or sharded.orig_dtype, size, count
            )
            sharding = sharding._replace(
                reduce_dtype=reduced,
                operation=operation,
                divisors=divisors,
                last_divisor=last,
                scatter_group=scatter,
                replica_group="" if collected else replicas,
            )
        layout, trainable, before = layout_of(sharded), parameter.requires_grad, accumulated(sharded)
        pending = None if before is None or accumulates else before.dtype
        found.append(
            Gather(
                again,
                dimension,
                parameter._spec,
                trainable,
                length,
                layout,
                sharding,
                trainable and collected,
                pending,
                not collected and has_part(group, place),
            )
        )
    return tuple(found)


def _division(group: Any, reduced: torch.dtype, size: int, count: int) -> tuple[str, tuple[float, ...], float]:
    """The operation that reduces gradients of a dtype, and the divisors before and after it.

    Args:
        size, count: the number of ranks that have shards, and this number times the number of replicas.
    """
    factor = group.gradient_divide_factor
    is_wide = reduced in (torch.float32, torch.bfloat16)
    if is_wide and not group.force_sum_reduction_for_comms:
        # the average of one rank, which NCCL may compute wrong, is its sum
        return ("avg" if count > 1 else "sum", (), 1.0) if factor is None else ("sum", (float(factor),), 1.0)
    instead = [float(factor)] if factor is not None and size == 1 else []  # else PyTorch divides the scattered result
    factor = float(count if factor is None else factor)
    before = 1.0
    while not is_wide and factor % before == 0 and factor / before > before:
        before *= 2  # as in PyTorch: about the square root before the reduction, to avoid overflow of sums
    divisors = [divisor for divisor in (before, *instead) if divisor != 1]
    return "sum", tuple(divisors), factor / before

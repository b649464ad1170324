"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

_FSDP: Final = "fully_shard in compiled programs"
_STATE: Final = "torch.distributed.fsdp._fully_shard._fsdp_state"
_GROUP: Final = "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup"
_PARAMETER: Final = "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam"

_DDP: Final = "DistributedDataParallel in compiled programs"
_WRAPPER: Final = "torch.nn.parallel.DistributedDataParallel"

_AGREEMENT: Final = "comparing the collectives of ranks"

DIFFERENTIABLE: Final = (
    "_Broadcast", "_Gather", "_Scatter", "_Reduce", "_Reduce_Scatter", "_AllGather", "_AllGatherBase", "_AlltoAll",
    "_AlltoAllSingle", "_AllReduce",
)  # fmt: skip
"""The subclasses of `torch.autograd.Function` in `torch.distributed.nn.functional`."""

ROWS: Final = (
    Name("torch.ops._c10d_functional", "communication in compiled programs"),
    Name(
        "torch.distributed._meta_registrations.generate_unique_id",
        "collectives in an autograd.Function",
        kind=Kind.NAME_ONLY,
    ),
    *[
        Name(f"torch._C._distributed_c10d.ProcessGroup._{name}", "batch_isend_irecv with NCCL", name=name)
        for name in ("start_coalescing", "end_coalescing")
    ],
    Name("torch.distributed.Work._source_rank", "refusing to receive from any rank", kind=Kind.NAME_ONLY),
    *[
        Name(
            f"torch.distributed.nn.functional.{name}",
            "differentiable collectives in compiled programs",
            kind=Kind.NAME_ONLY,
        )
        for name in DIFFERENTIABLE
    ],
    Name("torch.distributed.distributed_c10d._get_default_store", _AGREEMENT),
    Name("torch._C._distributed_c10d.ProcessGroup._get_backend", _AGREEMENT, name="backend_of_group"),
    Name(
        "torch._C._distributed_c10d.ProcessGroup._device_types",
        _AGREEMENT,
        name="devices_of_group",
        kind=Kind.ATTRIBUTE,
    ),
    Name(
        "torch._C._distributed_c10d.Backend.Options._timeout",
        _AGREEMENT,
        name="timeout_of_backend",
        kind=Kind.ATTRIBUTE,
    ),
    # The path of the module, and the methods that are replaced.
    Name(_STATE, _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._pre_forward", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._post_forward", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._lazy_init", _FSDP, name="lazy_init"),
    # The configuration of a wrapper. The plugin reads these attributes by name, so that their reads are guarded.
    Name(f"{_STATE}.FSDPState._is_root", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._fsdp_param_group", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._fsdp_param_groups", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._mp_policy", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._modules", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._modules_to_run_forward", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._cast_output_dtype", _FSDP, kind=Kind.NAME_ONLY, since="2.13"),
    Name(f"{_STATE}.FSDPState._state_ctx", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_STATE}.FSDPState._register_root_post_backward_final_callback", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_GROUP}._partial_reduce_output", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_GROUP}._partial_reduce_output_layout", _FSDP, kind=Kind.NAME_ONLY, since="2.15"),
    Name(f"{_GROUP}._all_gather_result", _FSDP, kind=Kind.NAME_ONLY),
    Name("torch.distributed.fsdp.FSDPModule._get_fsdp_state", _FSDP, kind=Kind.NAME_ONLY),
    Name("torch.distributed.fsdp._fully_shard._fsdp_common._from_local_no_grad", _FSDP),
    Name("torch.distributed.tensor.DTensor._local_tensor", _FSDP, kind=Kind.NAME_ONLY),
    Name("torch.distributed.tensor.DTensor._spec", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_GROUP}._all_reduce_hook", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_GROUP}._reduce_scatter_comm", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_GROUP}._all_gather_comm", _FSDP, kind=Kind.NAME_ONLY),
    Name(_PARAMETER, _FSDP, name="fsdp_param"),
    Name(f"{_PARAMETER}._has_sharded_grad_dtype_override", _FSDP, kind=Kind.NAME_ONLY, since="2.15"),
    Name(f"{_PARAMETER}._unsharded_dtensor_spec", _FSDP, kind=Kind.NAME_ONLY, since="2.13"),
    Name(f"{_PARAMETER}._tp_spec", _FSDP, kind=Kind.NAME_ONLY, until="2.13"),
    Name(f"{_PARAMETER}._module_info", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_PARAMETER}._sharded_local_tensor", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_PARAMETER}._orig_size", _FSDP, kind=Kind.NAME_ONLY),
    Name(f"{_PARAMETER}._unsharded_param", _FSDP, kind=Kind.NAME_ONLY),
    Name("torch.nn.Module._parameters", _FSDP, kind=Kind.NAME_ONLY),
    Name("torch.distributed.utils._apply_to_tensors", _FSDP),
    Name("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES", _DDP, name="default_first_bucket_bytes"),
    Name(f"{_WRAPPER}._get_ddp_logging_data", _DDP, kind=Kind.NAME_ONLY),
    Name(f"{_WRAPPER}._join_config", _DDP, kind=Kind.NAME_ONLY),
    Name(f"{_WRAPPER}._comm_hooks", _DDP, kind=Kind.NAME_ONLY),
    Name(f"{_WRAPPER}._delay_all_reduce_params", _DDP, kind=Kind.NAME_ONLY),
    Name(f"{_WRAPPER}._use_python_reducer", _DDP, kind=Kind.NAME_ONLY),
    Name("torch._C._current_graph_task_id", _DDP),
    Name("torch.autograd.Variable._execution_engine", _DDP),
    Name("torch.Tensor._backward_hooks", _DDP, kind=Kind.NAME_ONLY),
    Name("torch.Tensor._post_accumulate_grad_hooks", _DDP, kind=Kind.NAME_ONLY),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)

"""The private names of PyTorch that this plugin uses: what for."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, PrivateNames, Row

_FSDP: Final = "fully_shard in compiled programs"
_STATE: Final = "torch.distributed.fsdp._fully_shard._fsdp_state"
_GROUP: Final = "torch.distributed.fsdp._fully_shard._fsdp_param_group.FSDPParamGroup"
_PARAMETER: Final = "torch.distributed.fsdp._fully_shard._fsdp_param.FSDPParam"

_DDP: Final = "DistributedDataParallel in compiled programs"
_WRAPPER: Final = "torch.nn.parallel.DistributedDataParallel"

ROWS: Final = (
    Row("torch.ops._c10d_functional", "communication in compiled programs"),
    # The path of the module, and the methods that are replaced.
    Row(_STATE, _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._pre_forward", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._post_forward", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._lazy_init", _FSDP, name="lazy_init"),
    # What a wrapper is configured with. Attributes of instances: spelled, so that what is read of them is guarded.
    Row(f"{_STATE}.FSDPState._is_root", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._fsdp_param_group", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._fsdp_param_groups", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._mp_policy", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._modules", _FSDP, kind=Kind.SPELLED),
    Row(f"{_STATE}.FSDPState._modules_to_run_forward", _FSDP, kind=Kind.SPELLED),
    Row(f"{_GROUP}._partial_reduce_output", _FSDP, kind=Kind.SPELLED),
    Row(f"{_GROUP}._all_gather_result", _FSDP, kind=Kind.SPELLED),
    Row("torch.distributed.fsdp.FSDPModule._get_fsdp_state", _FSDP, kind=Kind.SPELLED),
    Row("torch.distributed.fsdp._fully_shard._fsdp_common._from_local_no_grad", _FSDP),
    Row("torch.distributed.tensor.DTensor._local_tensor", _FSDP, kind=Kind.SPELLED),
    Row("torch.distributed.tensor.DTensor._spec", _FSDP, kind=Kind.SPELLED),
    Row(f"{_GROUP}._all_reduce_hook", _FSDP, kind=Kind.SPELLED),
    Row(f"{_GROUP}._reduce_scatter_comm", _FSDP, kind=Kind.SPELLED),
    Row(f"{_GROUP}._all_gather_comm", _FSDP, kind=Kind.SPELLED),
    Row(f"{_PARAMETER}._has_sharded_grad_dtype_override", _FSDP, kind=Kind.SPELLED, since="2.15"),
    Row(f"{_PARAMETER}._unsharded_dtensor_spec", _FSDP, kind=Kind.SPELLED, since="2.13"),
    Row(f"{_PARAMETER}._tp_spec", _FSDP, kind=Kind.SPELLED, until="2.13"),
    Row(f"{_PARAMETER}._module_info", _FSDP, kind=Kind.SPELLED),
    Row(f"{_PARAMETER}._sharded_local_tensor", _FSDP, kind=Kind.SPELLED),
    Row(f"{_PARAMETER}._orig_size", _FSDP, kind=Kind.SPELLED),
    Row(f"{_PARAMETER}._unsharded_param", _FSDP, kind=Kind.SPELLED),
    Row("torch.nn.Module._parameters", _FSDP, kind=Kind.SPELLED),
    Row("torch.distributed.utils._apply_to_tensors", _FSDP),
    Row("torch.distributed._DEFAULT_FIRST_BUCKET_BYTES", _DDP, name="default_first_bucket_bytes"),
    Row(f"{_WRAPPER}._get_ddp_logging_data", _DDP, kind=Kind.SPELLED),
    Row(f"{_WRAPPER}._join_config", _DDP, kind=Kind.SPELLED),
    Row(f"{_WRAPPER}._comm_hooks", _DDP, kind=Kind.SPELLED),
    Row(f"{_WRAPPER}._delay_all_reduce_params", _DDP, kind=Kind.SPELLED),
    Row(f"{_WRAPPER}._use_python_reducer", _DDP, kind=Kind.SPELLED),
    Row("torch._C._current_graph_task_id", _DDP),
    Row("torch.autograd.Variable._execution_engine", _DDP),
    Row("torch.Tensor._backward_hooks", _DDP, kind=Kind.SPELLED),
    Row("torch.Tensor._post_accumulate_grad_hooks", _DDP, kind=Kind.SPELLED),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """What the row ``name`` gives; the module has it as an attribute from then on."""
    return NAMES.bind(name)

"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Kind, Name, PrivateNames

_JAGGED: Final = "jagged tensors in compiled programs"
_DTENSOR: Final = "DTensor in compiled programs"
_NESTED: Final = "torch.nested._internal"
_DISTRIBUTED: Final = "torch.distributed.tensor"

ROWS: Final = (
    Name(f"{_NESTED}.nested_tensor._nt_view_dummy", _JAGGED, kind=Kind.ENTRY_POINT, name="nested_view_dummy"),
    Name(f"{_NESTED}.ops.jagged_torch_function", _JAGGED, kind=Kind.ENTRY_POINT),
    Name(f"{_NESTED}.sdpa._select_sdp_backend", _JAGGED, kind=Kind.ENTRY_POINT),
    Name(f"{_NESTED}.nested_tensor.nested_from_padded", _JAGGED),
    Name("torch._scaled_dot_product_attention_math", _JAGGED),
    Name(f"{_NESTED}.nested_tensor.NestedTensor._maybe_min_seqlen", _JAGGED, kind=Kind.NAME_ONLY),
    Name(f"{_NESTED}.nested_tensor.NestedTensor._maybe_max_seqlen", _JAGGED, kind=Kind.NAME_ONLY),
    Name(f"{_NESTED}.nested_tensor.NestedTensor._ragged_idx", _JAGGED, kind=Kind.NAME_ONLY),
    Name(f"{_DISTRIBUTED}.DTensor._op_dispatcher._custom_op_handlers", _DTENSOR, name="dtensor_handlers"),
    Name(
        f"{_DISTRIBUTED}._sharding_prop.ShardingPropagator._propagate_tensor_meta_non_cached",
        _DTENSOR,
        kind=Kind.NAME_ONLY,
    ),
    Name(f"{_DISTRIBUTED}._random.OffsetBasedRNGTracker._distribute_region", _DTENSOR, kind=Kind.NAME_ONLY),
    Name(f"{_DISTRIBUTED}._api.check_tensor_meta", _DTENSOR, kind=Kind.NAME_ONLY),
    Name("torch.Tensor._backward_hooks", "derivatives of calls with wrapper subclasses", kind=Kind.NAME_ONLY),
    Name("torch._C._get_dtensor_allow_implicit_replication", _DTENSOR),
)

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)

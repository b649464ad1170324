"""Torch functions that are not recorded: metadata queries, and functions that read tensor values into Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import torch

from thunder_core.pytorch_internals import parse_to

_PROPERTIES: Final = """
    shape dtype device layout ndim itemsize nbytes requires_grad is_leaf grad_fn output_nr retains_grad name names
    is_cpu is_cuda is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_nested is_quantized is_sparse is_sparse_csr
    is_vulkan is_xla is_xpu _version _has_symbolic_sizes_strides _python_dispatch _backward_hooks
    _post_accumulate_grad_hooks grad_dtype volatile _cdata
"""

_METHODS: Final = """
    size dim ndimension stride numel nelement storage_offset element_size is_contiguous is_floating_point is_complex
    is_signed is_conj is_neg is_inference is_same_size is_shared is_pinned is_coalesced get_device dim_order has_names
    __len__ __hash__ __dir__ _is_view _is_zerotensor sparse_dim dense_dim is_distributed
    storage_type is_same_storage __dlpack_device__ _dimI _dimV q_scale q_zero_point q_per_channel_axis qscheme
"""

_FUNCTIONS: Final = """
    numel is_floating_point is_complex is_signed is_conj is_neg is_inference is_same_size is_distributed get_device
    result_type can_cast promote_types is_tensor is_storage broadcast_shapes is_grad_enabled is_inference_mode_enabled
    is_autocast_enabled get_default_dtype get_default_device device Size finfo iinfo
    q_scale q_zero_point q_per_channel_axis cudnn_is_acceptable _fused_sdp_choice _use_cudnn_ctc_loss
    _use_miopen_ctc_loss _has_compatible_shallow_copy_type _debug_has_internal_overlap _is_zerotensor
"""

_OPERATORS: Final = """
    size.default size.int stride.default stride.int sym_size.default sym_size.int sym_stride.default sym_stride.int
    sym_numel.default sym_storage_offset.default dim.default is_contiguous.default is_contiguous.memory_format
    is_strides_like_format.default is_non_overlapping_and_dense.default is_same_size.default storage_offset.default
    numel.default is_complex.default is_floating_point.default is_conj.default is_neg.default is_inference.default
    is_leaf.default output_nr.default retains_grad.default _version.default dense_dim.default sparse_dim.default
    is_coalesced.default is_pinned.default get_device.default element_size.default is_signed.default
    is_distributed.default cudnn_is_acceptable.default _fused_sdp_choice.default _use_cudnn_ctc_loss.default
    _use_cudnn_ctc_loss.Tensor _use_miopen_ctc_loss.default _use_miopen_ctc_loss.Tensor _is_zerotensor.default
    _has_compatible_shallow_copy_type.default _debug_has_internal_overlap.default sym_is_contiguous.default
    result_type.Tensor result_type.Scalar result_type.Scalar_Tensor result_type.Scalar_Scalar can_cast.default
    promote_types.default _dimI.default _dimV.default
    q_scale.default q_zero_point.default q_per_channel_axis.default qscheme.default _has_same_storage_numel.default
"""

# Ranges of the profiler. They are no ops of a trace: each op has those that it is in.
_ANNOTATIONS: Final = """
    _record_function_enter _record_function_enter.default _record_function_enter_new _record_function_enter_new.default
    _record_function_exit _record_function_exit.default _record_function_exit._RecordFunction
"""

_READS_METHODS: Final = """
    item tolist __bool__ __int__ __float__ __index__ __complex__ __nonzero__ numpy __array__ __contains__ __dlpack__
    equal allclose is_nonzero is_set_to data_ptr const_data_ptr untyped_storage storage __repr__ __format__
    __reduce_ex__ __str__ _nnz
"""

_READS_FUNCTIONS: Final = "equal allclose is_nonzero"


def _existing(owner: Any, names: str) -> Iterator[Callable[..., Any]]:
    """The attributes that this version of PyTorch has."""
    for name in names.split():
        if hasattr(owner, name):
            yield getattr(owner, name)


def _operators(namespace: Any, names: str) -> Iterator[Callable[..., Any]]:
    for name in names.split():
        packet, _, overload = name.partition(".")
        if hasattr(namespace, packet):
            yield from _existing(getattr(namespace, packet), overload) if overload else [getattr(namespace, packet)]


@cache
def metadata_functions() -> frozenset[Callable[..., Any]]:
    """Functions whose result is known from the types of their arguments. They are never part of a trace.

    The list is complete: every other call becomes an op of the trace, or is refused.
    """
    getters = (descriptor.__get__ for descriptor in _existing(torch.Tensor, _PROPERTIES))
    methods = _existing(torch.Tensor, _METHODS)
    operators = (*_operators(torch.ops.aten, _OPERATORS), *_operators(torch.ops.profiler, _ANNOTATIONS))
    return frozenset([*getters, *methods, *_existing(torch, _FUNCTIONS), *operators, parse_to])


@cache
def value_readers() -> frozenset[Callable[..., Any]]:
    """Functions that return elements of a tensor, or its storage, to Python."""
    return frozenset([*_existing(torch.Tensor, _READS_METHODS), *_existing(torch, _READS_FUNCTIONS)])

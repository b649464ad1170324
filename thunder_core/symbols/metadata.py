"""Torch functions that compute nothing: they read a tensor's type, or a value of it into Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import torch

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
    storage_type is_same_storage
"""

_FUNCTIONS: Final = """
    numel is_floating_point is_complex is_signed is_conj is_neg is_inference is_same_size is_distributed get_device
    result_type can_cast promote_types is_tensor is_storage broadcast_shapes is_grad_enabled is_inference_mode_enabled
    is_autocast_enabled get_default_dtype get_default_device device Size finfo iinfo
"""

_OPERATORS: Final = """
    size.default size.int stride.default stride.int sym_size.default sym_size.int sym_stride.default sym_stride.int
    sym_numel.default sym_storage_offset.default dim.default is_contiguous.default is_contiguous.memory_format
    is_strides_like_format.default is_non_overlapping_and_dense.default is_same_size.default
"""

_READS_METHODS: Final = """
    item tolist __bool__ __int__ __float__ __index__ __complex__ __nonzero__ numpy __array__ __contains__ __dlpack__
    equal allclose is_nonzero is_set_to data_ptr untyped_storage storage __repr__ __format__ __reduce_ex__ __str__
"""

_READS_FUNCTIONS: Final = "equal allclose is_nonzero"


def _existing(owner: Any, names: str) -> Iterator[Callable[..., Any]]:
    """The attributes that this version of PyTorch has."""
    for name in names.split():
        if hasattr(owner, name):
            yield getattr(owner, name)


def _operators(names: str) -> Iterator[Callable[..., Any]]:
    for name in names.split():
        packet, _, overload = name.partition(".")
        if hasattr(torch.ops.aten, packet) and hasattr(getattr(torch.ops.aten, packet), overload):
            yield getattr(getattr(torch.ops.aten, packet), overload)


@cache
def metadata_functions() -> frozenset[Callable[..., Any]]:
    """Functions whose result is known from the types of their arguments. They are never part of a trace."""
    getters = (descriptor.__get__ for descriptor in _existing(torch.Tensor, _PROPERTIES))
    methods = _existing(torch.Tensor, _METHODS)
    return frozenset([*getters, *methods, *_existing(torch, _FUNCTIONS), *_operators(_OPERATORS)])


@cache
def value_readers() -> frozenset[Callable[..., Any]]:
    """Functions that give elements of a tensor, or its memory, to Python."""
    return frozenset([*_existing(torch.Tensor, _READS_METHODS), *_existing(torch, _READS_FUNCTIONS)])

"""The private names of PyTorch that this plugin uses, each with its purpose."""

from __future__ import annotations

from typing import Any, Final

from thunder_core.private_names import Name, PrivateNames

_CAPTURE = "capturing CUDA graphs"
_REPLAY = "replaying CUDA graphs"
_CUDA = "torch.backends.cuda.is_built()"

ROWS: Final = (
    Name("torch._C._autograd._get_current_graph_task_keep_graph", "CUDA graphs of backward"),
    Name("torch._C._len_torch_dispatch_stack", "noticing torch-dispatch modes"),
    Name("torch.autograd.graph._engine_run_backward", "noticing threads that wait for backward", name="run_backward"),
    Name("torch._foreach_copy_", "copies of many inputs at once"),
    Name("torch._C._cuda_isCurrentStreamCapturing", "captures by others", name="is_current_stream_capturing",
        only_with=_CUDA),
    Name("torch.cuda._sleep", "timing calls of which the host is ahead"),
    Name("torch._C._cuda_getCurrentRawStream", _REPLAY, name="current_raw_stream", only_with=_CUDA),
    Name("torch._C._cuda_endAllocateToPool", _CAPTURE, name="end_allocate_to_pool", only_with=_CUDA),
    Name("torch._C._cuda_releasePool", _CAPTURE, name="release_pool", only_with=_CUDA),
    Name("torch.autograd.grad_mode._unsafe_preserve_version_counter", _CAPTURE),
    Name("torch.UntypedStorage._new_with_weak_ptr", "noticing results in use", name="storage_of_weak_pointer"),
    Name("torch._C._construct_storage_from_data_pointer", _REPLAY),
    Name("torch._C._construct_CUDA_Tensor_From_Storage_And_Metadata", _REPLAY, name="construct_cuda_tensor",
        only_with=_CUDA),
    Name("torch._C._tensors_data_ptrs_at_indices_equal", _REPLAY, only_with=_CUDA),
)  # fmt: skip

NAMES: Final = PrivateNames(__name__, ROWS)


def __getattr__(name: str) -> Any:
    """The value of the row ``name``, which becomes an attribute of the module."""
    return NAMES.bind(name)

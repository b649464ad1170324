"""Each private name of PyTorch that the plugin uses exists, and behaves as the plugin takes for granted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import thunder_plugin_cudagraphs
from thunder_plugin_cudagraphs.backend import Layout
from thunder_plugin_cudagraphs.pytorch_internals import NAMES
from thunder_testing import private_names_suite


def graph_is_kept(function: Any) -> None:
    found: list[bool] = []
    x = torch.ones(1, requires_grad=True)
    y = x * 2
    y.register_hook(lambda _: found.append(function()))
    y.backward(retain_graph=True)
    y.backward()
    assert found == [True, False]


class _Mode(TorchDispatchMode):
    """Sees each operation."""


def dispatch_modes(function: Any) -> None:
    assert function() == 0
    with _Mode():
        assert function() == 1


def copies(function: Any) -> None:
    targets = [torch.zeros(2), torch.zeros(2, 2).t()]
    sources = [torch.ones(2), torch.arange(4.0).view(2, 2)]
    function(targets, sources)
    assert all(map(torch.equal, targets, sources))


def capturing(function: Any) -> None:
    assert callable(function)
    if torch.cuda.is_available():
        assert function() is False


def raw_stream(function: Any) -> None:
    assert callable(function)
    if torch.cuda.is_available():
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                assert function(torch.cuda.current_device()) == stream.cuda_stream


def preserves_versions(preserve: Any) -> None:
    tensors = (torch.zeros(2), torch.zeros(3))
    before = [tensor._version for tensor in tensors]
    with torch.no_grad(), preserve(tensors):
        for tensor in tensors:
            tensor.add_(1)
    assert [tensor._version for tensor in tensors] == before
    with preserve(()):
        pass


def of_weak_pointer(function: Any) -> None:
    tensor = torch.ones(2)
    reference = StorageWeakRef(tensor.untyped_storage())
    assert function(reference.cdata).data_ptr() == tensor.data_ptr()
    del tensor
    assert function(reference.cdata) is None


def storage(function: Any) -> None:
    whole = torch.arange(4.0)
    found = function(whole.data_ptr(), whole.device, 8)
    assert isinstance(found, torch.UntypedStorage)
    assert (found.data_ptr(), found.nbytes()) == (whole.data_ptr(), 8)


def tensor_of_storage(function: Any) -> None:
    assert callable(function)
    if torch.cuda.is_available():
        x = torch.arange(6.0, device="cuda").view(2, 3).t()[1:]
        found = function(Layout.of(x).metadata, x.untyped_storage())
        assert torch.equal(found, x)
        assert (found.data_ptr(), found.stride()) == (x.data_ptr(), x.stride())


def same_addresses(function: Any) -> None:
    one, other = torch.ones(2), torch.ones(2)
    addresses = [one.data_ptr(), None, one.data_ptr()]
    assert function([one, 5, other], addresses, [0])
    assert not function([one, 5, other], addresses, [0, 2])


def is_function(function: Any) -> None:
    """What it does takes a capture that fails: ``test_cuda.py`` has one."""
    assert callable(function)


def calls_the_engine(function: Any) -> None:
    codes = []
    x = torch.ones(2, requires_grad=True)
    x.register_hook(lambda grad: codes.append(sys._getframe(1).f_code))
    x.sum().backward()
    assert codes == [function.__code__]


def keeps_busy(function: Any) -> None:
    assert callable(function)
    if torch.cuda.is_available():
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function(20_000_000)
        end.record()
        end.synchronize()
        assert 5 < start.elapsed_time(end) < 100


CHECKS: dict[str, Callable[..., object]] = {
    "get_current_graph_task_keep_graph": graph_is_kept,
    "len_torch_dispatch_stack": dispatch_modes,
    "foreach_copy_": copies,
    "is_current_stream_capturing": capturing,
    "current_raw_stream": raw_stream,
    "sleep": keeps_busy,
    "run_backward": calls_the_engine,
    "end_allocate_to_pool": is_function,
    "release_pool": is_function,
    "unsafe_preserve_version_counter": preserves_versions,
    "storage_of_weak_pointer": of_weak_pointer,
    "construct_storage_from_data_pointer": storage,
    "construct_cuda_tensor": tensor_of_storage,
    "tensors_data_ptrs_at_indices_equal": same_addresses,
}

test_names = private_names_suite(NAMES, CHECKS, folders=[Path(thunder_plugin_cudagraphs.__file__).parent])

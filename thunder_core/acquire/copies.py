"""``copy.deepcopy`` of tensors in a program."""

from __future__ import annotations

import copy
from typing import Any

import torch

from thunder_core.acquire.autograd_reads import read_gradient
from thunder_core.acquire.recorder import Recorder
from thunder_core.acquire.traced_tensor import is_traced
from thunder_core.errors import UnsupportedError
from thunder_core.guards.plain import is_plain_content
from thunder_core.pytorch_internals import DisableTorchFunction
from thunder_core.tracing.user_frames import calls_program, user_location

_Tensor: Any = torch.Tensor  # its properties are descriptors, which the stubs do not say
IS_LEAF = _Tensor.is_leaf.__get__


@calls_program
def deepcopy(recorder: Recorder, tensor: torch.Tensor, memo: dict[Any, Any]) -> Any:
    """``tensor.__deepcopy__(memo)``: a leaf of the autograd graph, in memory of its own.

    Raises:
        RuntimeError: what PyTorch raises for a tensor that is no leaf.
        UnsupportedError: the copy would share memory with another one, or have more memory than it shows.
    """
    if id(tensor) in memo:
        return memo[id(tensor)]
    if not recorder.tensors.ask(IS_LEAF, (tensor,), {}):
        recorder.tensors.ask(torch.Tensor.__deepcopy__, (tensor, memo), {})  # raises
    proxy = recorder.tensors.proxy_of(tensor)
    reason = _why_not(recorder, tensor, memo)
    if reason:
        raise UnsupportedError(
            f"deepcopy of {proxy.name}, {reason}",
            location=user_location(),
            advice=("write tensor.detach().clone()", "copy it outside of the compiled function"),
        )
    with torch.no_grad():
        copied = recorder.call(torch.clone, (recorder.call(torch.Tensor.detach, (tensor,), {}),), {})
    if proxy.requires_grad:
        copied = recorder.call(torch.Tensor.requires_grad_, (copied,), {})
    vars(copied).update(copy.deepcopy(vars(tensor), memo))
    memo[id(tensor)] = memo[_key(proxy.storage)] = copied
    return copied


def _why_not(recorder: Recorder, tensor: torch.Tensor, memo: dict[Any, Any]) -> str:
    """Why a copy is not just a clone; empty if it is."""
    proxy = recorder.tensors.proxy_of(tensor)
    if type(tensor) is not torch.Tensor:
        return f"which is of the class {type(tensor).__qualname__}"
    if _key(proxy.storage) in memo:
        return "which shares memory with another tensor that is copied"
    if read_gradient(recorder, tensor) is not None:
        return "which has a gradient"
    if not is_plain_content(vars(tensor)):
        return "which has attributes that are no plain values"
    if proxy.layout is not torch.strided or proxy.device.type == "meta":
        return ""
    with DisableTorchFunction(), recorder.tensors.fake_mode.observing():
        fake: Any = recorder.tensors.fake(recorder.tensors.variable(tensor))
        shown = fake if is_traced(tensor) else tensor
        whole = shown.untyped_storage().nbytes() == shown.numel() * shown.element_size()
        same = torch.empty_like(fake).stride() == fake.stride()
        if not (whole and same) or fake.is_conj() or fake.is_neg():
            return "which shows a part of its memory, or shows it otherwise than it is"
    return ""


def _key(storage: int) -> tuple[str, int]:
    """Where the copy of a memory is in the dictionary of what was copied."""
    return "memory", storage

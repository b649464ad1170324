"""Conditions of kernels. Each function returns a reason for declining a call, or None.

They follow PyTorch's checks (``aten/src/ATen/native/transformers``: ``sdp_utils_cpp.h``, ``cuda/sdp_utils.cpp``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from thunder_core.ir.size import Size, are_constant, least_of
from thunder_plugin_sdpa.call import Call

Condition = Callable[[Call], str | None]


def plain(call: Call) -> str | None:
    """Dense tensors with four dimensions on one device, and numbers that are known when the program is compiled."""
    for tensor in call.tensors.values():
        if tensor.layout is not torch.strided:
            return f"a tensor has the layout {tensor.layout}"
        if tensor.device != call.query.device:
            return f"tensors are on {call.query.device} and {tensor.device}"
    for tensor in call.inputs.values():
        if tensor.ndim != 4:
            return f"query, key and value need four dimensions, and one has {tensor.ndim}"
        if any(not isinstance(size, Size) for size in (*tensor.shape, *tensor.stride)):
            return "sizes are not known when the program is compiled"
    if not isinstance(call.dropout, int | float) or not isinstance(call.scale, int | float | None):
        return "dropout_p and scale must be plain numbers"
    if not isinstance(call.causal, bool) or not isinstance(call.grouped, bool):
        return "is_causal and enable_gqa must be bools"
    if call.causal and call.mask is not None:
        return "attn_mask and is_causal exclude each other"
    return None


def switched_on(enabled: Callable[[], bool], name: str) -> Condition:
    """The kernel is enabled; a change of this setting recompiles programs."""

    def condition(call: Call) -> str | None:
        return None if enabled() else f"{name} is disabled by sdpa_kernel or torch.backends.cuda"

    return condition


def dtypes(*allowed: torch.dtype) -> Condition:
    """One of these dtypes, the same for query, key and value."""

    def condition(call: Call) -> str | None:
        dtypes_ = list(dict.fromkeys(tensor.dtype for tensor in call.inputs.values()))
        if len(dtypes_) > 1:
            return f"query, key and value have the dtypes {', '.join(map(str, dtypes_))}"
        return None if dtypes_[0] in allowed else f"{dtypes_[0]} is not implemented"

    return condition


def same_batch(call: Call) -> str | None:
    """The same batch size for query, key and value."""
    sizes = [tensor.shape[0] for tensor in call.inputs.values()]
    return None if len(set(sizes)) == 1 else f"batch sizes differ: {', '.join(map(str, sizes))}"


def heads(call: Call) -> str | None:
    """As many key and value heads as query heads, or a divisor of that with ``enable_gqa``."""
    queries, keys, values = (tensor.shape[1] for tensor in call.inputs.values())
    if queries == keys == values:
        return None
    if not call.grouped:
        return f"numbers of heads differ: {queries}, {keys}, {values}"
    if keys != values or not keys or int(queries) % int(keys):
        return f"{keys} key heads and {values} value heads do not divide {queries}"
    return None


def equal_sizes(call: Call) -> str | None:
    """The same head dimension for query, key and value."""
    sizes = [tensor.shape[3] for tensor in call.inputs.values()]
    return None if len(set(sizes)) == 1 else f"head dimensions differ: {', '.join(map(str, sizes))}"


def largest_size(limit: int) -> Condition:
    """A head dimension up to a limit."""

    def condition(call: Call) -> str | None:
        size = max(call.query.shape[3], call.value.shape[3])
        return None if size <= limit else f"head dimension {size} is above {limit}"

    return condition


def aligned_size(call: Call) -> str | None:
    """Rows whose size is a multiple of 16 bytes."""
    step = 16 // call.query.dtype.itemsize
    for size in (call.query.shape[3], call.value.shape[3]):
        if size == 0 or size % step:
            return f"head dimension {size} is not a multiple of {step}"
    return None


def not_empty(call: Call) -> str | None:
    """Query, key and value are not empty. Some GPU kernels return None (cuDNN's), divide by zero or read out of bounds
    (flash without heads or head dimension), or have no gradients (PyTorch 2.11).
    """
    return next((reason for tensor in call.inputs.values() if (reason := _empty("a tensor", *tensor.shape))), None)


def no_empty_sequence(call: Call) -> str | None:
    """There are queries and keys."""
    return _empty("a sequence", call.query.shape[2], call.key.shape[2])


def _empty(what: str, *sizes: Size) -> str | None:
    """The reason why these sizes are empty, or may be empty in a later call; None if they never are."""
    if all(least_of(size) > 0 for size in sizes):
        return None
    return f"{what} is empty" if are_constant(sizes) else f"{what} may be empty, as its sizes vary between calls"


def adjacent_elements(call: Call) -> str | None:
    """The last stride of each tensor is 1."""
    for name, tensor in call.tensors.items():
        if tensor.stride and tensor.stride[-1] != 1:
            return f"the last stride of {name} is {tensor.stride[-1]}, not 1"
    return None


def no_dropout(call: Call) -> str | None:
    """No dropout."""
    return "it has no dropout" if call.dropout else None


def dropout_in_sixteenths(call: Call) -> str | None:
    """A probability that cuDNN represents."""
    fits = float(call.dropout * 16).is_integer()
    return None if fits else f"dropout_p {call.dropout} is not a multiple of 1/16"


def square_if_causal(call: Call) -> str | None:
    """Causal only with as many queries as keys, because flash aligns its mask to the bottom right."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    if call.causal and queries != keys:
        return f"is_causal with {queries} queries and {keys} keys"
    return None


def several_keys(call: Call) -> str | None:
    """More than one key."""
    keys = call.key.shape[2]
    if isinstance(keys, int):
        return "there is only one key" if keys == 1 else None
    return None if least_of(keys) > 1 else "there may be only one key, as their number varies between calls"


def not_deterministic(call: Call) -> str | None:
    """Deterministic algorithms are not required."""
    strict = torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    return "deterministic algorithms are required" if strict else None


def capability(least: tuple[int, int]) -> Condition:
    """A GPU with at least this compute capability."""

    def condition(call: Call) -> str | None:
        if not torch.cuda.is_available():
            return "there is no CUDA device"
        capability_ = torch.cuda.get_device_capability(call.query.device)
        return None if capability_ >= least else f"the GPU has compute capability {capability_}, and {least} is needed"

    return condition

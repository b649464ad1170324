"""What kernels ask of a call: functions that return why it does not fit, or None.

They follow PyTorch's own checks (``aten/src/ATen/native/transformers``: ``sdp_utils_cpp.h``, ``cuda/sdp_utils.cpp``).
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from thunder_core.ir.size import Size, are_constant, least_of
from thunder_plugin_sdpa.call import Call

Condition = Callable[[Call], str | None]


def plain(call: Call) -> str | None:
    """Dense tensors of four dimensions on one device, and numbers that are known when the program is compiled."""
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
        return "is_causal and enable_gqa must be plain truth values"
    if call.causal and call.mask is not None:
        return "attn_mask and is_causal exclude each other"
    return None


def switched_on(enabled: Callable[[], bool], name: str) -> Condition:
    """The user's choice; programs are compiled anew when it changes."""

    def condition(call: Call) -> str | None:
        return None if enabled() else f"{name} is switched off, by sdpa_kernel or torch.backends.cuda"

    return condition


def dtypes(*allowed: torch.dtype) -> Condition:
    """One of these, the same for query, key and value."""

    def condition(call: Call) -> str | None:
        found = list(dict.fromkeys(tensor.dtype for tensor in call.inputs.values()))
        if len(found) > 1:
            return f"query, key and value have the dtypes {', '.join(map(str, found))}"
        return None if found[0] in allowed else f"{found[0]} is not implemented"

    return condition


def same_batch(call: Call) -> str | None:
    """The same batch for query, key and value."""
    sizes = [tensor.shape[0] for tensor in call.inputs.values()]
    return None if len(set(sizes)) == 1 else f"batch sizes differ: {', '.join(map(str, sizes))}"


def heads(call: Call) -> str | None:
    """As many heads of keys and values as of queries, or with ``enable_gqa`` a divisor of them."""
    own, keys, values = (tensor.shape[1] for tensor in call.inputs.values())
    if own == keys == values:
        return None
    if not call.grouped:
        return f"numbers of heads differ: {own}, {keys}, {values}"
    if keys != values or not keys or int(own) % int(keys):
        return f"{keys} heads of keys and {values} of values do not divide {own}"
    return None


def equal_sizes(call: Call) -> str | None:
    """Query, key and value of one head dimension."""
    sizes = [tensor.shape[3] for tensor in call.inputs.values()]
    return None if len(set(sizes)) == 1 else f"head dimensions differ: {', '.join(map(str, sizes))}"


def largest_size(limit: int) -> Condition:
    """Head dimensions up to a limit."""

    def condition(call: Call) -> str | None:
        size = max(call.query.shape[3], call.value.shape[3])
        return None if size <= limit else f"head dimension {size} is above {limit}"

    return condition


def aligned_size(call: Call) -> str | None:
    """Rows of a multiple of 16 bytes."""
    step = 16 // call.query.dtype.itemsize
    for size in (call.query.shape[3], call.value.shape[3]):
        if size == 0 or size % step:
            return f"head dimension {size} is not a multiple of {step}"
    return None


def not_empty(call: Call) -> str | None:
    """Query, key and value. Of kernels for GPUs some return None (cuDNN's), divide by zero or read memory that is not
    there (flash without heads, without head dimension), or have no gradients (PyTorch 2.11).
    """
    return next((reason for tensor in call.inputs.values() if (reason := _empty("a tensor", *tensor.shape))), None)


def no_empty_sequence(call: Call) -> str | None:
    """Queries and keys."""
    return _empty("a sequence", call.query.shape[2], call.key.shape[2])


def _empty(what: str, *sizes: Size) -> str | None:
    """Why something of these sizes is empty, or may be so in a later call; None where it never is."""
    if all(least_of(size) > 0 for size in sizes):
        return None
    return f"{what} is empty" if are_constant(sizes) else f"{what} may be empty, as its sizes vary between calls"


def adjacent_elements(call: Call) -> str | None:
    """The last dimension of each tensor that has one lies in adjacent elements of memory."""
    for name, tensor in call.tensors.items():
        if tensor.stride and tensor.stride[-1] != 1:
            return f"the last stride of {name} is {tensor.stride[-1]}, not 1"
    return None


def no_dropout(call: Call) -> str | None:
    """No dropout."""
    return "it has no dropout" if call.dropout else None


def dropout_in_sixteenths(call: Call) -> str | None:
    """A probability that cuDNN resolves."""
    fits = float(call.dropout * 16).is_integer()
    return None if fits else f"dropout_p {call.dropout} is not a multiple of 1/16"


def square_if_causal(call: Call) -> str | None:
    """Causal only with as many queries as keys: flash aligns its mask at the end."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    if call.causal and queries != keys:
        return f"is_causal with {queries} queries and {keys} keys"
    return None


def several_keys(call: Call) -> str | None:
    """More than one key."""
    keys = call.key.shape[2]
    if isinstance(keys, int):
        return "there is one key only" if keys == 1 else None
    return None if least_of(keys) > 1 else "there may be one key only, as their number varies between calls"


def not_deterministic(call: Call) -> str | None:
    """No demand for deterministic algorithms."""
    strict = torch.are_deterministic_algorithms_enabled() and not torch.is_deterministic_algorithms_warn_only_enabled()
    return "deterministic algorithms are demanded" if strict else None


def capability(least: tuple[int, int]) -> Condition:
    """A GPU of some compute capability."""

    def condition(call: Call) -> str | None:
        if not torch.cuda.is_available():
            return "there is no CUDA device"
        found = torch.cuda.get_device_capability(call.query.device)
        return None if found >= least else f"the GPU has compute capability {found}, and {least} is needed"

    return condition

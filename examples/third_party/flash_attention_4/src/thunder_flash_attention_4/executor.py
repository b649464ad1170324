"""The claim of attention, and the calls of FlashAttention-4, whose tensors are (batch, tokens, heads, elements)."""

from functools import partial
from importlib import import_module

import torch
import torch.nn.functional as F

from thunder_core.executors import Claim, DerivativePair, OperatorExecutor


def executor(options, device="cuda"):
    """The executor. It takes no options. Tests of the calls have the device ``cpu``."""
    pair = DerivativePair(forward, backward, partial(forward, fake=True))
    claim = Claim(F.scaled_dot_product_attention, check=partial(check, device), derivative=pair)
    return OperatorExecutor("flash_attention_4", (claim,))


def interface():
    """The module of the library, which takes seconds to import."""
    return import_module("flash_attn.cute.interface")


def like(reference, value):
    """A tensor of (batch, tokens, heads, elements) as (batch, heads, tokens, elements) with the strides of another."""
    value, result = value.transpose(1, 2), torch.empty_like(reference)
    return value if value.stride() == result.stride() else result.copy_(value)


def forward(
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, fake=False
):
    if fake:
        output = torch.empty_like(query)
        return output, (
            query,
            key,
            value,
            output,
            query.new_empty(query.shape[:3], dtype=torch.float32),
            is_causal,
            scale,
        )
    tensors = [each.transpose(1, 2) for each in (query, key, value)]
    run = interface()._flash_attn_fwd
    output, sums, *_ = run(*tensors, softmax_scale=scale, causal=is_causal, return_lse=True)
    output = like(query, output)
    return output, (query, key, value, output, sums, is_causal, scale)


def backward(residuals, cotangents, wanted):
    query, key, value, output, sums, is_causal, scale = residuals
    tensors = [each.transpose(1, 2) for each in (query, key, value, output, cotangents[0].contiguous())]
    run = interface()._flash_attn_bwd
    gradients = run(*tensors, sums, softmax_scale=scale, causal=is_causal, deterministic=True)
    given = zip((query, key, value), gradients, wanted)
    return tuple(like(each, gradient) if needed else None for each, gradient, needed in given)


def check(
    device, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
) -> bool | str:
    """True, or the reason why the call is declined."""
    tensors = {"query": query, "key": key, "value": value}
    if attn_mask is not None or dropout_p != 0.0:
        return "masks other than is_causal, and dropout, are not implemented"
    if scale is not None and type(scale) is not float:
        return "the scale is not a number that is known when the program is compiled"
    for name, each in tensors.items():
        if each.dtype not in (torch.float16, torch.bfloat16) or each.dtype is not query.dtype:
            return f"{name} is {each.dtype}: all are float16, or all bfloat16"
        if each.device.type != device or each.device != query.device:
            return f"{name} is on {each.device}, and not on one {device} device with the others"
        if each.ndim != 4 or any(type(size) is not int for size in each.shape) or 0 in each.shape:
            return f"{name} has not four dimensions of known sizes, or is empty"
        if each.stride[-1] != 1 or any(step % 8 for step in each.stride[:-1]) or not is_dense(each):
            return f"{name} has the strides {each.stride}: heads are dense, and begin at multiples of 16 bytes"
    (batch, heads, tokens, elements), (_, groups, keys, _) = query.shape, key.shape
    if key.shape != (batch, groups, keys, elements) or value.shape != key.shape:
        return f"the shapes {query.shape}, {key.shape} and {value.shape} do not fit"
    if heads % groups or (heads != groups and not enable_gqa):
        return f"{heads} heads of queries and {groups} of keys, with enable_gqa={enable_gqa}"
    if elements % 8 or elements > 128:
        return f"heads have {elements} elements, and not a multiple of 8 up to 128"
    if is_causal and tokens != keys:
        return "the causal mask of FlashAttention is aligned to the last key, that of PyTorch to the first"
    return unfit_device(query.device) or True if device == "cuda" else True


def is_dense(tensor) -> bool:
    """Whether a tensor has no gaps and no overlaps, so that `torch.empty_like` keeps its strides."""
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(tensor.stride, tensor.shape) if size > 1):
        if step != expected:
            return False
        expected *= size
    return True


def unfit_device(device: torch.device) -> str | None:
    """Why the kernels do not run on this GPU; None if they do."""
    if not torch.cuda.is_available():
        return "there is no GPU"
    capability = torch.cuda.get_device_capability(device)
    return None if capability[0] in (9, 10) else f"compute capability {capability}, and 9.x or 10.x is needed"

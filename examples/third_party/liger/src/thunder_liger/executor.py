"""The claims: operations, and the conditions under which Liger's kernels run them."""

from functools import partial

import torch
import torch.nn.functional as F
import triton

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.ir.proxy import TensorProxy
from thunder_liger import kernels

INTERPRETED = not isinstance(triton.jit(lambda: None), triton.JITFunction)


def executor(options):
    """The executor. It takes no options."""
    loss = partial(kernels.linear_loss, gradients=False)
    claims = (
        Claim(composites.rms_norm, check=check_rms_norm, derivative=kernels.RMS_NORM),
        Claim(F.rms_norm, check=check_torch_rms_norm, derivative=kernels.TORCH_RMS_NORM),
        Claim(F.layer_norm, check=check_layer_norm, derivative=kernels.LAYER_NORM),
        Claim(composites.swiglu, check=partial(check_gated, approximate="tanh"), derivative=kernels.SWIGLU),
        Claim(composites.geglu, check=check_gated, derivative=kernels.GEGLU),
        Claim(composites.linear_cross_entropy, loss, check=check_linear_loss, derivative=kernels.LINEAR_LOSS),
    )
    return OperatorExecutor("liger", claims)


def unfit(*tensors: TensorProxy | None, rows: bool = True) -> str | None:
    """Why kernels do not run on these tensors; None if they do. ``rows``: the others are parameters."""
    first, *others = [each for each in tensors if each is not None]
    for each in (first, *others):
        known = each.shape and all(type(size) is int and size > 0 for size in each.shape)
        if each.layout is not torch.strided or not each.contiguous or not known:
            return "an argument is not contiguous, or empty, or its sizes are not known when the program is compiled"
        if (each.dtype, each.device) != (first.dtype, first.device):
            return f"arguments are {each.dtype} on {each.device} and {first.dtype} on {first.device}"
    if rows and any(each.shape != first.shape[-1:] for each in others):
        return "a parameter does not have the shape of a row"
    if first.shape[-1] > 65536:  # Liger's calculate_settings
        return f"rows of {first.shape[-1]} elements exceed 65,536"
    return unfit_device(first.device, first.dtype)


def unfit_device(device: torch.device, dtype: torch.dtype) -> str | None:
    """Why kernels do not run on this device for this dtype; None if they do."""
    if dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"{dtype} is not implemented"
    if device.type == "cpu" and INTERPRETED:
        return None if dtype is torch.float32 else f"Triton's interpreter multiplies the bits of {dtype}"
    if device.type != "cuda" or not torch.cuda.is_available() or INTERPRETED:
        return f"Triton's kernels run on GPUs (under TRITON_INTERPRET=1 on CPUs), and a tensor is on {device}"
    capability = torch.cuda.get_device_capability(device)
    return None if capability >= (8, 0) else f"compute capability {capability}, and (8, 0) is needed"


def check_rms_norm(input, weight, eps, unit_offset=False, rounded=False):
    if unit_offset and rounded and input.dtype is not torch.float32:
        return "1 + weight is not rounded by Liger"
    return unfit(input, weight) or True


def check_torch_rms_norm(input, normalized_shape, weight=None, eps=None):
    if eps is None or len(normalized_shape) != 1:
        return "eps must be given, and one dimension normalized"
    return unfit(input, weight) or True


def check_layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5):
    if weight is None or bias is None or len(normalized_shape) != 1:
        return "weight and bias must be given, and one dimension normalized"
    return unfit(input, weight, bias) or True


def check_gated(gate, up, approximate="none"):
    if gate.shape != up.shape or approximate != "tanh":
        return "shapes differ, or it is an exact GELU: Liger approximates it by tanh"
    return unfit(gate, up, rows=False) or True


def check_linear_loss(
    input, weight, target, bias=None, class_weight=None, ignore_index=-100, reduction="mean", *_, **__
):
    if class_weight is not None:
        return "weights of classes are not implemented"
    if reduction == "none" and any(each is not None and each.requires_grad for each in (input, weight, bias)):
        return "reduction 'none' with gradients: they are computed before the cotangents are known"
    if target.dtype is not torch.int64 or target.device != input.device or target.numel == 0:
        return "the target has no elements, or is not int64 on the device of the input"
    return unfit(input, weight, bias, rows=False) or True

"""The claims: operations, and the conditions under which quack's kernels run them."""

import torch
import torch.nn.functional as F

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.ir.proxy import TensorProxy
from thunder_quack import kernels


def executor(options, device="cuda"):
    """The executor. It takes no options. Tests of the calls have the device ``cpu``."""

    def claim(symbol, check, derivative):
        return Claim(
            symbol, check=lambda *args, **kwargs: check(device, *args, **kwargs) or True, derivative=derivative
        )

    claims = (
        claim(composites.rms_norm, unfit_rms_norm, kernels.RMS_NORM),
        claim(F.rms_norm, unfit_torch_rms_norm, kernels.TORCH_RMS_NORM),
        claim(torch.softmax, unfit_softmax, kernels.SOFTMAX),
        claim(F.cross_entropy, unfit_cross_entropy, kernels.CROSS_ENTROPY),
    )
    return OperatorExecutor("quack", claims)


def unfit(device: str, input: TensorProxy, weight: TensorProxy | None = None) -> str | None:
    """Why kernels do not run on these tensors, an input and a weight of the size of its rows; None if they do."""
    if input.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"{input.dtype} is not implemented"
    for each in filter(None, (input, weight)):
        if each.layout is not torch.strided or not each.contiguous or not each.shape or 0 in each.shape:
            return "an argument is not contiguous, or has no elements or no dimension"
        if any(type(size) is not int for size in each.shape):
            return "sizes are not known when the program is compiled"
        if each.device.type != device or each.device != input.device or each.dtype is not input.dtype:
            return f"arguments are {each.dtype} on {each.device}; they must be {input.dtype} on one {device} device"
    if weight is not None and weight.shape != input.shape[-1:]:
        return "the weight does not have the shape of a row"
    if input.shape[-1] * input.dtype.itemsize % 16:
        return f"rows of {input.shape[-1]} elements are not multiples of 16 bytes"
    return unfit_device(input.device) if device == "cuda" else None


def unfit_device(device: torch.device) -> str | None:
    """Why kernels do not run on this GPU; None if they do."""
    if not torch.cuda.is_available():
        return "there is no GPU"
    capability = torch.cuda.get_device_capability(device)
    return None if capability >= (9, 0) else f"compute capability {capability}, and (9, 0) is needed"


def unfit_rms_norm(device, input, weight, eps, unit_offset=False, rounded=False):
    if rounded and input.dtype is not torch.float32:
        return "quack rounds after the multiplication by the weight"
    return unfit(device, input, weight)


def unfit_torch_rms_norm(device, input, normalized_shape, weight=None, eps=None):
    if weight is None or eps is None or len(normalized_shape) != 1:
        return "weight and eps must be given, and one dimension normalized"
    return unfit(device, input, weight)


def unfit_softmax(device, input, dim, dtype=None):
    if dtype not in (None, input.dtype) or dim not in (-1, input.ndim - 1):
        return "it is not over the last dimension in the dtype of the input"
    return unfit(device, input)


def unfit_cross_entropy(
    device, input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0,
):  # fmt: skip
    if weight is not None or label_smoothing != 0.0 or size_average is not None or reduce is not None:
        return "weights of classes and label smoothing are not implemented"
    if input.ndim != 2 or target.ndim != 1 or target.dtype is not torch.int64 or target.device != input.device:
        return "the input is not a matrix, or the target no vector of classes on its device"
    return unfit(device, input)

"""Calls of quack's kernels, which take rows: forwards, backwards, and what they return for fake tensors.

quack compiles a kernel at its first call, so it is imported there.
"""

from functools import partial
from importlib import import_module

import torch

from thunder_core.executors import DerivativePair


def quack(module, name):
    return getattr(import_module(f"quack.{module}"), name)


def rows(tensor):
    return tensor.reshape(-1, tensor.shape[-1])


def statistics(input):
    return torch.empty(input.numel() // input.shape[-1], dtype=torch.float32, device=input.device)


def only(wanted, gradients):
    return tuple(each if needed else None for each, needed in zip(gradients, wanted))


def rms_norm_forward(input, weight, eps, unit_offset=False, rounded=False, fake=False):
    offset = float(unit_offset)
    if fake:
        return torch.empty_like(input), (input, weight, statistics(input), offset)
    forward = quack("rmsnorm", "rmsnorm_fwd")
    output, _, scale = forward(rows(input), weight, eps=eps, store_rstd=True, weight_offset=offset)
    return output.view(input.shape), (input, weight, scale, offset)


def torch_rms_norm_forward(input, normalized_shape, weight=None, eps=None, fake=False):
    return rms_norm_forward(input, weight, eps, fake=fake)


def rms_norm_backward(residuals, cotangents, wanted):
    input, weight, scale, offset = residuals
    backward = quack("rmsnorm", "rmsnorm_bwd")
    cotangent = rows(cotangents[0].contiguous())
    of_input, of_weight, *_ = backward(rows(input), weight, cotangent, scale, weight_offset=offset)
    return only(wanted, (of_input.view(input.shape), of_weight))


def softmax_forward(input, dim, dtype=None, fake=False):
    output = torch.empty_like(input) if fake else quack("softmax", "softmax_fwd")(rows(input)).view(input.shape)
    return output, (output,)


def softmax_backward(residuals, cotangents, wanted):
    (output,) = residuals
    gradient = quack("softmax", "softmax_bwd")(rows(cotangents[0].contiguous()), rows(output))
    return only(wanted, (gradient.view(output.shape),))


def cross_entropy_forward(
    input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
    label_smoothing=0.0, fake=False,
):  # fmt: skip
    if fake:
        losses, sums = statistics(input), statistics(input)
    else:
        forward = quack("cross_entropy", "cross_entropy_fwd")
        losses, sums = forward(input, target, ignore_index=ignore_index, return_lse=True)
    count = (target != ignore_index).sum() if reduction == "mean" else None
    loss = losses if reduction == "none" else losses.sum() if count is None else losses.sum() / count
    return loss.to(input.dtype), (input, target, sums, count, ignore_index)


def cross_entropy_backward(residuals, cotangents, wanted):
    input, target, sums, count, ignore_index = residuals
    of_loss = cotangents[0].float() if count is None else cotangents[0].float() / count
    of_losses = of_loss.expand(target.shape).contiguous()
    gradient = quack("cross_entropy", "cross_entropy_bwd")(input, target, of_losses, sums, ignore_index=ignore_index)
    return only(wanted, (gradient, None))


def pair(forward, backward):
    return DerivativePair(forward, backward, partial(forward, fake=True))


RMS_NORM = pair(rms_norm_forward, rms_norm_backward)
TORCH_RMS_NORM = pair(torch_rms_norm_forward, rms_norm_backward)
SOFTMAX = pair(softmax_forward, softmax_backward)
CROSS_ENTROPY = pair(cross_entropy_forward, cross_entropy_backward)

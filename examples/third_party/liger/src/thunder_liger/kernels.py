"""Calls of Liger's kernels: forwards, backwards, and what they return for fake tensors."""

from functools import partial

import torch
from liger_kernel.ops import fused_linear_cross_entropy, geglu, layer_norm, rms_norm, swiglu

from thunder_core.executors import DerivativePair


def statistics(input):
    return torch.empty(input.numel() // input.shape[-1], dtype=torch.float32, device=input.device)


def pair(forward, backward):
    return DerivativePair(forward, backward, partial(forward, fake=True))


def only(wanted, gradients):
    return tuple(each if needed else None for each, needed in zip(gradients, wanted))


def rms_norm_forward(input, weight, eps, unit_offset=False, rounded=False, fake=False):
    offset, mode = float(unit_offset), 0 if rounded else 1  # Liger's modes "llama" and "gemma"
    if fake:
        return torch.empty_like(input), (input, weight, statistics(input), offset, mode)
    output, _, scale, *_ = rms_norm.rms_norm_forward(input, weight, eps, offset, mode, None)
    return output, (input, weight, scale, offset, mode)


def rms_norm_backward(residuals, cotangents, wanted):
    input, *others = residuals
    rows, settings = input.view(-1, input.shape[-1]), rms_norm.calculate_settings(input.shape[-1])
    options = {"in_place": False, "row_mode": None, "needs_dw": wanted[-1]}
    return only(wanted, rms_norm.rms_norm_backward(cotangents[0].contiguous(), rows, *others, *settings, **options))


def torch_rms_norm_forward(input, normalized_shape, weight=None, eps=None, fake=False):
    return rms_norm_forward(input, weight, eps, fake=fake)


def layer_norm_forward(input, normalized_shape, weight, bias, eps=1e-5, fake=False):
    if fake:
        return torch.empty_like(input), (input, weight, bias, statistics(input), statistics(input))
    output, _, mean, scale, *_ = layer_norm.layer_norm_forward(input, weight, bias, eps)
    return output, (input, weight, bias, mean, scale)


def layer_norm_backward(residuals, cotangents, wanted):
    input, *others = residuals
    rows = input.view(-1, input.shape[-1])
    return only(wanted, layer_norm.layer_norm_backward(cotangents[0].contiguous(), rows, *others, *wanted[1:]))


def gated(forward, backward):
    def run(gate, up, approximate="tanh", fake=False):
        return torch.empty_like(gate) if fake else forward(gate, up)[2], (gate, up)

    def gradients(residuals, cotangents, wanted):
        gate, up = (each.clone() for each in residuals)  # Liger writes the gradients there
        return only(wanted, backward(gate, up, cotangents[0].contiguous()))

    return pair(run, gradients)


def linear_loss(
    input, weight, target, bias=None, class_weight=None, ignore_index=-100, reduction="mean",
    label_smoothing=0.0, upcast=False, start=None, stop=None, gradients=True, fake=False,
):  # fmt: skip
    dtype, given = torch.float32 if upcast else input.dtype, [input, weight, *([] if bias is None else [bias])]
    if fake:
        loss = torch.empty(target.shape if reduction == "none" else (), dtype=dtype, device=input.device)
        return loss, tuple(torch.empty_like(each) for each in given)
    chosen = input if start is None and stop is None else input[..., start:stop, :]
    loss, *_, of_chosen, of_weight, of_bias = fused_linear_cross_entropy.fused_linear_cross_entropy_forward(
        chosen.reshape(-1, input.shape[-1]), weight, target, bias=bias, ignore_index=ignore_index,
        label_smoothing=label_smoothing, reduction=reduction, accum_dtype=torch.float32,
        compute_gradients=gradients, weight_requires_grad=gradients,
    )  # fmt: skip
    if reduction == "mean":  # of no rows PyTorch's is NaN
        loss = torch.where((target != ignore_index).any(), loss, float("nan"))
    if not gradients:
        return loss.to(dtype)
    of_input = of_chosen.view(chosen.shape)
    if chosen is not input:
        of_input = torch.zeros_like(input).slice_scatter(of_input, -2, start, stop)
    return loss.to(dtype), (of_input, of_weight, of_bias)[: len(given)]


def linear_loss_backward(residuals, cotangents, wanted):
    of_input, of_weight, *of_bias = (each * cotangents[0].to(each.dtype) for each in residuals)
    return only(wanted, (of_input, of_weight, None, *of_bias))  # the target has none


RMS_NORM = pair(rms_norm_forward, rms_norm_backward)
TORCH_RMS_NORM = pair(torch_rms_norm_forward, rms_norm_backward)
LAYER_NORM = pair(layer_norm_forward, layer_norm_backward)
SWIGLU = gated(swiglu.swiglu_forward, swiglu.swiglu_backward)
GEGLU = gated(geglu.geglu_forward, geglu.geglu_backward)
LINEAR_LOSS = pair(linear_loss, linear_loss_backward)

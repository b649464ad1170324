"""The two extension modules of NVIDIA Apex in PyTorch, for tests on a CPU.

Written after the sources of Apex, master of 2025:

- ``csrc/layer_norm_cuda.cpp``, ``csrc/layer_norm_cuda_kernel.cu``, ``apex/normalization/fused_layer_norm.py``;
- ``apex/contrib/csrc/xentropy/interface.cpp``, ``xentropy_kernel.cu``, ``apex/contrib/xentropy/softmax_xentropy.py``.

It takes what they take and raises where they do: arguments by position, dense tensors, one dtype. Statistics are in
float32, one for each row. It rounds where the kernels round: normalized values to the dtype of the result, before they
are multiplied by the weight, and again before the bias is added.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch
from torch import Tensor

from thunder_plugin_apex.library import CROSS_ENTROPY, NORMS

KERNEL_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
calls: list[str] = []
"""The functions that were called, for tests of which executor ran an operation."""


def _require(condition: bool, text: str) -> None:
    if not condition:
        raise RuntimeError(text)


def _checked(input: Tensor, shape: list[int], *others: Tensor) -> Tensor:
    """The input in float32, as rows of what is normalized."""
    _require(isinstance(shape, list) and len(shape) > 0, "normalized_shape must be a list")
    _require(list(input.shape[input.ndim - len(shape) :]) == shape, "normalized_shape does not fit the input")
    for tensor in (input, *others):
        _require(tensor.is_contiguous(), "a tensor must be contiguous")
        _require(tensor.dtype is input.dtype and input.dtype in KERNEL_DTYPES, "expected another scalar type")
    size = torch.Size(shape).numel()
    _require(input.numel() > 0, "invalid configuration argument")
    return input.float().reshape(-1, size)


def _parameters(shape: list[int], *parameters: Tensor) -> None:
    for parameter in parameters:
        _require(list(parameter.shape) == shape, "gamma.sizes().equals(normalized_shape)")


def _clamped(weight: Tensor, eps: float) -> Tensor:
    """Away from zero, for the division with which ``memory_efficient`` gets the normalized values back."""
    weight = weight.float()
    return torch.where(weight >= 0, weight.clamp(min=eps), weight.clamp(max=-eps))


def forward(input, normalized_shape, eps):
    calls.append("forward")
    x = _checked(input, normalized_shape)
    mean = x.mean(1)
    invvar = torch.rsqrt(x.var(1, correction=0) + eps)
    output = (x - mean[:, None]) * invvar[:, None]
    return [output.to(input.dtype).view(input.shape), mean, invvar]


def forward_affine(input, normalized_shape, weight, bias, eps):
    _checked(input, normalized_shape, weight, bias)
    _parameters(normalized_shape, weight, bias)
    output, mean, invvar = forward(input, normalized_shape, eps)
    calls[-1] = "forward_affine"
    return [weight * output + bias, mean, invvar]


def backward(grad_output, mean, invvar, input_or_output, normalized_shape, eps, memory_efficient):
    calls.append("backward")
    kept = _checked(input_or_output, normalized_shape, grad_output)
    normalized = kept if memory_efficient else (kept - mean[:, None]) * invvar[:, None]
    return _grad_input(grad_output, normalized, invvar, input_or_output, centred=True)


def backward_affine(grad_output, mean, invvar, input_or_output, normalized_shape, weight, bias, eps, memory_efficient):
    calls.append("backward_affine")
    kept = _checked(input_or_output, normalized_shape, grad_output, weight, bias)
    _parameters(normalized_shape, weight, bias)
    gradient = grad_output.float().view(kept.shape)
    if memory_efficient:
        normalized = (kept - bias.float().view(-1)) / _clamped(weight, eps).view(-1)
    else:
        normalized = (kept - mean[:, None]) * invvar[:, None]
    scaled = gradient * weight.float().view(-1)
    of_input = _grad_input(scaled, normalized, invvar, input_or_output, centred=True)
    of_weight = (gradient * normalized).sum(0).view(weight.shape).to(weight.dtype)
    return [of_input, of_weight, gradient.sum(0).view(bias.shape).to(bias.dtype)]


def rms_forward(input, normalized_shape, eps):
    calls.append("rms_forward")
    x = _checked(input, normalized_shape)
    invvar = torch.rsqrt(x.square().mean(1) + eps)
    return [(x * invvar[:, None]).to(input.dtype).view(input.shape), invvar]


def rms_forward_affine(input, normalized_shape, weight, eps):
    _checked(input, normalized_shape, weight)
    _parameters(normalized_shape, weight)
    output, invvar = rms_forward(input, normalized_shape, eps)
    calls[-1] = "rms_forward_affine"
    return [weight * output, invvar]


def rms_backward(grad_output, invvar, input_or_output, normalized_shape, eps, memory_efficient):
    calls.append("rms_backward")
    kept = _checked(input_or_output, normalized_shape, grad_output)
    normalized = kept if memory_efficient else kept * invvar[:, None]
    return _grad_input(grad_output, normalized, invvar, input_or_output, centred=False)


def rms_backward_affine(grad_output, invvar, input_or_output, normalized_shape, weight, eps, memory_efficient):
    calls.append("rms_backward_affine")
    kept = _checked(input_or_output, normalized_shape, grad_output, weight)
    _parameters(normalized_shape, weight)
    gradient = grad_output.float().view(kept.shape)
    normalized = kept / _clamped(weight, eps).view(-1) if memory_efficient else kept * invvar[:, None]
    scaled = gradient * weight.float().view(-1)
    of_input = _grad_input(scaled, normalized, invvar, input_or_output, centred=False)
    return [of_input, (gradient * normalized).sum(0).view(weight.shape).to(weight.dtype)]


def _grad_input(gradient: Tensor, normalized: Tensor, invvar: Tensor, like: Tensor, *, centred: bool) -> Tensor:
    gradient = gradient.float().view(normalized.shape)
    found = gradient - normalized * (gradient * normalized).mean(1, keepdim=True)
    if centred:
        found = found - gradient.mean(1, keepdim=True)
    return (found * invvar[:, None]).to(like.dtype).view(like.shape)


def xentropy_forward(input, labels, smoothing, half_to_float):
    """Losses in float32, NaN where a logit is -inf; the label's logit is read without looking whether there is one."""
    calls.append("xentropy_forward")
    _logits(input, labels)
    _require(not half_to_float or input.dtype is not torch.float32, "conversion is supported for Half and BFloat16")
    _require(bool(((labels >= 0) & (labels < input.shape[1])).all()), "a label that would be read from other memory")
    x = input.float()
    logsumexp = x.logsumexp(1)
    label = x.gather(1, labels[:, None])[:, 0]
    losses = (logsumexp - x.sum(1) / x.shape[1]) * smoothing - (label - logsumexp) * (1 - smoothing)
    return [losses, logsumexp if half_to_float else logsumexp.to(input.dtype)]


def xentropy_backward(grad_loss, logits, max_log_sum_exp, labels, smoothing):
    calls.append("xentropy_backward")
    _logits(logits, labels)
    _require(grad_loss.dtype in (logits.dtype, torch.float32), "expected input and grad types to match")
    _require(max_log_sum_exp.dtype is grad_loss.dtype, "expected another scalar type")
    _require(max_log_sum_exp.is_contiguous() and grad_loss.shape == labels.shape, "one gradient for each label")
    probabilities = (logits.float() - max_log_sum_exp.float()[:, None]).exp()
    hot = torch.nn.functional.one_hot(labels, logits.shape[1]).float()
    wanted = hot * (1 - smoothing) + smoothing / logits.shape[1]
    return (grad_loss.float()[:, None] * (probabilities - wanted)).to(logits.dtype)


def _logits(logits: Tensor, labels: Tensor) -> None:
    _require(logits.dtype in KERNEL_DTYPES, "host_softmax_xentropy not implemented")
    _require(labels.dtype is torch.int64, "Label type should be CUDA Long")
    _require(logits.ndim == 2 and labels.ndim == 1 and logits.shape[0] == labels.shape[0], "2 and 1 dimensions")
    # The real one takes logits of other strides, and writes their gradient in the wrong order.
    _require(logits.is_contiguous() and labels.is_contiguous(), "labels must be contiguous")
    _require(logits.numel() > 0, "Number of classes in input should not be 0")


def modules() -> dict[str, ModuleType]:
    """New modules with these functions, by name."""
    norms, entropy = ModuleType(NORMS), ModuleType(CROSS_ENTROPY)
    for function in (forward, forward_affine, backward, backward_affine):
        setattr(norms, function.__name__, function)
    for function in (rms_forward, rms_forward_affine, rms_backward, rms_backward_affine):
        setattr(norms, function.__name__, function)
    entropy.forward, entropy.backward = xentropy_forward, xentropy_backward
    return {NORMS: norms, CROSS_ENTROPY: entropy}


@contextmanager
def installed() -> Iterator[None]:
    """While it lasts, imports find the fake."""
    before = {name: sys.modules.get(name) for name in (NORMS, CROSS_ENTROPY)}
    sys.modules.update(modules())
    calls.clear()
    try:
        yield
    finally:
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module

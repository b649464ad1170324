"""`torch.nn.SyncBatchNorm` in training, written in operators that every device supports.

PyTorch's own function selects ranks with elements by a mask, so that shapes are data-dependent, and calls operators
that have no kernel for fake tensors or for the CPU. Here the statistics of each rank are weighted by its number of
elements, which is 0 for a rank without any. The communicated data has the same size: a mean, a variance (PyTorch sends
its inverse root) and a count for each channel in forward, two sums in backward.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


def sync_batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    eps: float,
    momentum: Any,
    process_group: Any,
    world_size: int,
) -> torch.Tensor:
    """The result of ``SyncBatchNorm.apply`` of ``torch.nn.modules._functions``, with the same arguments.

    Args:
        input: of shape ``(N, C, ...)``; a rank may have ``N == 0``.

    Raises:
        ValueError: all ranks together have only one value for each channel.
    """
    if input.numel() == input.shape[1] and world_size < 2:
        raise ValueError("Expected more than 1 value per channel when training, got input size 1")
    result: torch.Tensor
    result, mean, variance, count = SynchronizedBatchNorm.apply(input, weight, bias, eps, process_group, world_size)
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), momentum)
    return result


class SynchronizedBatchNorm(torch.autograd.Function):
    """The result, and the mean, the biased variance and the number of elements of each channel over all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        input: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        process_group: Any,
        world_size: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        values, channels = _computed(input), input.shape[1]
        own = values.new_zeros(2 * channels + 1)
        if input.numel() > 0:
            variance, mean = torch.var_mean(values, _reduced(input), correction=0)
            own = torch.cat([mean, variance, values.new_full((1,), input.numel() // channels)])
        parts = [torch.empty_like(own) for _ in range(world_size)]
        dist.all_gather(parts, own, process_group)
        means, variances, counts = torch.stack(parts).split([channels, channels, 1], 1)
        count = counts.sum()
        mean = (means * counts).sum(0) / count
        variance = ((variances + (means - mean).square()) * counts).sum(0) / count
        factor = torch.rsqrt(variance + eps)
        result = (values - _along(mean, input)) * _along(factor, input)
        if weight is not None:
            result = result * _along(weight.to(result.dtype), input)
        if bias is not None:
            result = result + _along(bias.to(result.dtype), input)
        ctx.save_for_backward(input, weight, mean, factor, count)
        ctx.process_group = process_group
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.mark_non_differentiable(mean, variance, count)
        return result.to(input.dtype), mean, variance, count

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        input, weight, mean, factor, count = ctx.saved_tensors
        gradient = _computed(cotangents[0])
        centered = _computed(input) - _along(mean, input)
        dimensions, channels = _reduced(input), input.shape[1]
        total, product = gradient.sum(dimensions), (gradient * centered).sum(dimensions)
        needs_input, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        of_input = of_weight = of_bias = None
        if needs_weight:
            of_weight = (product * factor).to(weight.dtype)
        if needs_bias:
            of_bias = total.to(ctx.bias_dtype, copy=True)
        if needs_input:
            sums = torch.cat([total, product])
            dist.all_reduce(sums, group=ctx.process_group)
            total, product = (sums / count).split(channels)
            of_input = gradient - _along(total, input) - centered * _along(product * factor.square(), input)
            scale = factor if weight is None else factor * weight.to(factor.dtype)
            of_input = (of_input * _along(scale, input)).to(input.dtype)
        return of_input, of_weight, of_bias, None, None, None


def _computed(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` in the dtype in which statistics are computed."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _reduced(input: torch.Tensor) -> list[int]:
    """All dimensions except the channel dimension."""
    return [dimension for dimension in range(input.ndim) if dimension != 1]


def _along(values: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
    """One value for each channel, reshaped to broadcast to the shape of ``input``."""
    return values.view(1, -1, *[1] * (input.ndim - 2))

"""``torch.nn.functional.layer_norm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_apex.conditions import unfit, unfit_dtype, unfit_number
from thunder_plugin_apex.library import NORMS, extension
from thunder_plugin_apex.memory_efficient import saving_output


def unfit_call(
    device: str,
    input: TensorProxy,
    normalized_shape: Sequence[Any],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: Any = 1e-5,
) -> str | None:
    """The reason why Apex does not run the call; None if it does."""
    if (weight is None) != (bias is None):
        return f"there is {'a bias' if weight is None else 'a weight'} only, and both or none are required"
    affine = {} if weight is None or bias is None else {"weight": weight, "bias": bias}
    if reason := unfit_dtype(input) or unfit(device, {"input": input, **affine}) or unfit_number("eps", eps):
        return reason
    for name, tensor in affine.items():
        if tensor.dtype is not input.dtype:
            return f"{name} is {tensor.dtype}, and input {input.dtype}"
        if tensor.shape != tuple(normalized_shape):
            return f"{name} has the shape {tuple(tensor.shape)}, not {tuple(normalized_shape)}"
    return None


def forward(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    shape = list(normalized_shape)
    with torch.cuda.device_of(input):  # Apex launches on the current device
        if weight is None:
            output, mean, invvar = extension(NORMS).forward(input, shape, eps)
        else:
            output, mean, invvar = extension(NORMS).forward_affine(input, shape, weight, bias, eps)
    return output, (input, mean, invvar, weight, bias, shape, eps, False)


def forward_saving_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward` with the result among the residuals instead of ``input``."""
    return saving_output(*forward(*args, **kwargs))


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of input, weight and bias."""
    saved, mean, invvar, weight, bias, shape, eps, memory_efficient = residuals
    gradient = cotangents[0].contiguous()
    with torch.cuda.device_of(saved):
        if weight is None:
            gradients = (extension(NORMS).backward(gradient, mean, invvar, saved, shape, eps, memory_efficient),)
        else:
            gradients = extension(NORMS).backward_affine(
                gradient, mean, invvar, saved, shape, weight, bias, eps, memory_efficient
            )
    return tuple([each if want else None for each, want in zip(gradients, wanted)])


def _fake(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, tuple[Any, ...]]:
    rows = input.shape[: input.ndim - len(normalized_shape)].numel()
    mean, invvar = (torch.empty(rows, dtype=torch.float32, device=input.device) for _ in range(2))
    return torch.empty_like(input), (input, mean, invvar, weight, bias, list(normalized_shape), eps, False)


def _fake_saving_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return saving_output(*_fake(*args, **kwargs))


PAIR: Final = DerivativePair(forward, backward, _fake)
PAIR_SAVING_OUTPUT: Final = DerivativePair(forward_saving_output, backward, _fake_saving_output)

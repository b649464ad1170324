"""``torch.nn.functional.rms_norm``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_apex.conditions import DTYPES, unfit, unfit_dtype, unfit_number
from thunder_plugin_apex.library import NORMS, extension
from thunder_plugin_apex.memory_efficient import saving_output


def unfit_call(
    device: str, input: TensorProxy, normalized_shape: Sequence[Any], weight: TensorProxy | None = None, eps: Any = None
) -> str | None:
    """The reason why Apex does not run the call; None if it does.

    Without ``eps``, PyTorch's default depends on its kernel, so such calls are declined.
    """
    affine = {} if weight is None else {"weight": weight}
    if reason := unfit_dtype(input) or unfit(device, {"input": input, **affine}) or unfit_number("eps", eps):
        return reason
    if weight is None:
        return None
    converted = input.dtype is torch.float32 and weight.dtype in DTYPES
    if weight.dtype is not input.dtype and not converted:
        return f"weight is {weight.dtype}, and input {input.dtype}"
    if weight.shape != tuple(normalized_shape):
        return f"weight has the shape {tuple(weight.shape)}, not {tuple(normalized_shape)}"
    return None


def forward(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`. A float16 or bfloat16 weight is cast to the float32 of the input."""
    shape = list(normalized_shape)
    with torch.cuda.device_of(input):  # Apex launches on the current device
        if weight is None:
            output, invvar = extension(NORMS).rms_forward(input, shape, eps)
        else:
            output, invvar = extension(NORMS).rms_forward_affine(input, shape, weight.to(input.dtype), eps)
    return output, (input, None, invvar, weight, shape, eps, False)


def forward_saving_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward` with the result among the residuals instead of ``input``."""
    return saving_output(*forward(*args, **kwargs))


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of input and weight."""
    saved, _, invvar, weight, shape, eps, memory_efficient = residuals
    gradient = cotangents[0].contiguous()
    with torch.cuda.device_of(saved):
        if weight is None:
            of_input = extension(NORMS).rms_backward(gradient, invvar, saved, shape, eps, memory_efficient)
            return (of_input if wanted[0] else None,)
        of_input, of_weight = extension(NORMS).rms_backward_affine(
            gradient, invvar, saved, shape, weight.to(saved.dtype), eps, memory_efficient
        )
    return of_input if wanted[0] else None, of_weight.to(weight.dtype) if wanted[1] else None


def fake(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward`."""
    rows = input.shape[: input.ndim - len(normalized_shape)].numel()
    invvar = torch.empty(rows, dtype=torch.float32, device=input.device)
    return torch.empty_like(input), (input, None, invvar, weight, list(normalized_shape), eps, False)


def _fake_saving_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return saving_output(*fake(*args, **kwargs))


PAIR: Final = DerivativePair(forward, backward, fake)
PAIR_SAVING_OUTPUT: Final = DerivativePair(forward_saving_output, backward, _fake_saving_output)

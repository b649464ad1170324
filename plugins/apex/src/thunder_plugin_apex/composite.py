"""``composites.rms_norm``: a root mean square normalization of the last dimension that a model writes out."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_apex import rms_norm
from thunder_plugin_apex.memory_efficient import saving_output


def unfit_call(
    device: str, input: TensorProxy, weight: TensorProxy, eps: Any, unit_offset: Any = False, rounded: Any = False
) -> str | None:
    """The reason why Apex does not run the call; None if it does.

    Apex multiplies by the weight in the dtype of its result, like models that round before the multiplication
    (``rounded``). Otherwise a float16 or bfloat16 result would differ by one rounding.
    """
    if input.ndim == 0:
        return "input has no dimension"
    for name, tensor in {"input": input, "weight": weight}.items():
        if unit_offset and tensor.dtype is not torch.float32:
            return f"1 is added to the weight in float32, and {name} is {tensor.dtype}"
    return rms_norm.unfit_call(device, input, input.shape[-1:], weight, eps)


def forward(
    input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    return rms_norm.forward(input, input.shape[-1:], weight + 1 if unit_offset else weight, eps)


def forward_saving_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward` with the result among the residuals instead of ``input``."""
    return saving_output(*forward(*args, **kwargs))


def _fake(
    input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> tuple[Tensor, tuple[Any, ...]]:
    return rms_norm.fake(input, input.shape[-1:], weight + 1 if unit_offset else weight, eps)


def _fake_saving_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return saving_output(*_fake(*args, **kwargs))


PAIR: Final = DerivativePair(forward, rms_norm.backward, _fake)
PAIR_SAVING_OUTPUT: Final = DerivativePair(forward_saving_output, rms_norm.backward, _fake_saving_output)

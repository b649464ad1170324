"""``composites.rms_norm``: a root-mean-square normalization that a model spells out, of the last dimension."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_apex import rms_norm
from thunder_plugin_apex.output_kept import output_kept


def unfit_call(
    device: str, input: TensorProxy, weight: TensorProxy, eps: Any, unit_offset: Any = False, rounded: Any = False
) -> str | None:
    """Why Apex does not run the call; None if it does.

    Apex multiplies by the weight in the dtype of its result, as models do that round before (``rounded``). Without
    that the result of half precision differs by one rounding.
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
    """The result, and what `backward` takes."""
    return rms_norm.forward(input, input.shape[-1:], weight + 1 if unit_offset else weight, eps)


def forward_keeping_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """`forward`, whose result is kept instead of ``input``."""
    return output_kept(*forward(*args, **kwargs))


def _fake(
    input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> tuple[Tensor, tuple[Any, ...]]:
    return rms_norm.fake(input, input.shape[-1:], weight + 1 if unit_offset else weight, eps)


def _fake_keeping_output(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return output_kept(*_fake(*args, **kwargs))


PAIR: Final = DerivativePair(forward, rms_norm.backward, _fake)
PAIR_KEEPING_OUTPUT: Final = DerivativePair(forward_keeping_output, rms_norm.backward, _fake_keeping_output)

"""``torch.nn.functional.rms_norm``, and ``composites.rms_norm`` for the forms in which models write it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cudnn.norm_conditions import unfit
from thunder_plugin_cudnn.norms import gradients, normalized, row_size

EPSILON: Final = torch.finfo(torch.float32).eps
"""PyTorch's default for all dtypes that are computed in float32."""


def claim(symbol: Callable[..., Any], device: str) -> Claim:
    """The claim of ``F.rms_norm``."""

    def check(*args: Any, **kwargs: Any) -> bool | str:
        return _unfit_call(device, *args, **kwargs) or True

    return Claim(symbol, run, check, PAIR)


def composite_claim(symbol: Callable[..., Any], device: str) -> Claim:
    """The claim of the composite."""

    def check(*args: Any, **kwargs: Any) -> bool | str:
        return _unfit_composite(device, *args, **kwargs) or True

    return Claim(symbol, run_composite, check, COMPOSITE_PAIR)


def _unfit_call(
    device: str,
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    eps: Any = None,
) -> str | None:
    parameters = {} if weight is None else {"weight": weight}
    if weight is not None and weight.dtype is not input.dtype:
        return f"weight is {weight.dtype}, and input {input.dtype}"
    of_weight = None if weight is None else weight.dtype
    eps = EPSILON if eps is None else eps
    return unfit("rmsnorm", device, input, tuple(normalized_shape), parameters, eps, of_weight)


def _unfit_composite(
    device: str, input: TensorProxy, weight: TensorProxy, eps: Any, unit_offset: Any = False, rounded: Any = False
) -> str | None:
    """Declines calls with two roundings: cuDNN rounds once, after the multiplication by the weight."""
    if input.ndim == 0:
        return "input has no dimension"
    if weight.dtype not in (input.dtype, torch.float32):
        return f"weight is {weight.dtype}, and input {input.dtype}"
    if rounded and not input.dtype is weight.dtype is torch.float32:
        return "it is rounded before the multiplication by the weight"
    of_weight = torch.float32 if unit_offset else weight.dtype
    return unfit("rmsnorm", device, input, input.shape[-1:], {"weight": weight}, eps, of_weight)


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
    return _forward(True, False, *_arguments(*args, **kwargs))[0]


def run_composite(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
    return _forward(True, False, *_composite_arguments(*args, **kwargs))[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    return _forward(True, True, *_arguments(*args, **kwargs))


def forward_composite(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    return _forward(True, True, *_composite_arguments(*args, **kwargs))


def _fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return _forward(False, True, *_arguments(*args, **kwargs))


def _fake_composite(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return _forward(False, True, *_composite_arguments(*args, **kwargs))


def _arguments(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> tuple[Any, ...]:
    """The arguments of `_forward` for ``F.rms_norm``."""
    return input, tuple(normalized_shape), weight, EPSILON if eps is None else eps, False


def _composite_arguments(
    input: Tensor, weight: Tensor, eps: float, unit_offset: bool = False, rounded: bool = False
) -> tuple[Any, ...]:
    """The arguments of `_forward` for the composite."""
    return input, tuple(input.shape[-1:]), weight, eps, unit_offset


def _forward(
    compute: bool,
    statistics: bool,
    input: Tensor,
    shape: tuple[int, ...],
    weight: Tensor | None,
    eps: float,
    unit_offset: bool,
) -> tuple[Tensor, tuple[Any, ...]]:
    factor = _factor(weight, unit_offset)
    output, _, inverse = normalized(compute, "rmsnorm", input, row_size(shape), factor, None, eps, statistics)
    return output, (input, weight, inverse, shape, unit_offset)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of input and weight, if present."""
    input, weight, inverse, shape, unit_offset = residuals
    factor = _factor(weight, unit_offset)
    of_input, of_weight, _ = gradients("rmsnorm", cotangents[0], input, row_size(shape), factor, None, inverse)
    given = [of_input]
    if weight is not None:
        given.append(of_weight.view(shape).to(weight.dtype))
    return tuple([gradient if want else None for gradient, want in zip(given, wanted)])


def _factor(weight: Tensor | None, unit_offset: bool) -> Tensor | None:
    """The factor of normalized rows: 1 is added in float32."""
    return weight.float() + 1 if unit_offset and weight is not None else weight


PAIR: Final = DerivativePair(forward, backward, _fake)
COMPOSITE_PAIR: Final = DerivativePair(forward_composite, backward, _fake_composite)

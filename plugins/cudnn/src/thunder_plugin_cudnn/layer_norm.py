"""``torch.nn.functional.layer_norm``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from torch import Tensor

from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cudnn.norm_conditions import unfit
from thunder_plugin_cudnn.norms import gradients, normalized, row_size


def claim(symbol: Callable[..., Any], device: str) -> Claim:
    """The claim of the operation."""

    def check(*args: Any, **kwargs: Any) -> bool | str:
        return _unfit_call(device, *args, **kwargs) or True

    return Claim(symbol, run, check, PAIR)


def _unfit_call(
    device: str,
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: Any = 1e-5,
) -> str | None:
    given = {"weight": weight, "bias": bias}
    parameters = {name: tensor for name, tensor in given.items() if tensor is not None}
    for name, tensor in parameters.items():
        if tensor.dtype is not input.dtype:
            return f"{name} is {tensor.dtype}, and input {input.dtype}"
    of_weight = None if weight is None else weight.dtype
    return unfit("layernorm", device, input, tuple(normalized_shape), parameters, eps, of_weight)


def run(*args: Any, **kwargs: Any) -> Tensor:
    """The result without residuals."""
    return _forward(True, False, *args, **kwargs)[0]


def forward(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The result, and the residuals of `backward`."""
    return _forward(True, True, *args, **kwargs)


def _fake(*args: Any, **kwargs: Any) -> tuple[Tensor, tuple[Any, ...]]:
    return _forward(False, True, *args, **kwargs)


def _forward(
    compute: bool,
    statistics: bool,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, tuple[Any, ...]]:
    size = row_size(normalized_shape)
    output, mean, inverse = normalized(compute, "layernorm", input, size, weight, bias, eps, statistics)
    return output, (input, weight, mean, inverse, tuple(normalized_shape), bias is not None)


def backward(
    residuals: tuple[Any, ...], cotangents: tuple[Any, ...], wanted: tuple[bool, ...]
) -> tuple[Tensor | None, ...]:
    """Gradients of input, weight and bias, if present."""
    input, weight, mean, inverse, shape, has_bias = residuals
    results = gradients("layernorm", cotangents[0], input, row_size(shape), weight, mean, inverse)
    of_input, of_weight, of_bias = results
    given = [of_input]
    if weight is not None:
        given.append(of_weight.view(shape))
    if has_bias and of_bias is not None:
        given.append(of_bias.view(shape))
    return tuple([gradient if want else None for gradient, want in zip(given, wanted)])


PAIR: Final = DerivativePair(forward, backward, _fake)

"""The claims of linear layer with cross entropy: the composite, and PyTorch's function."""

from __future__ import annotations

from typing import Any, Final

import torch.nn.functional as F
from torch import Tensor

import thunder_plugin_composites as composites
from thunder_core.executors import Claim, DerivativePair
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.size import Size
from thunder_plugin_triton import conditions as need
from thunder_plugin_triton import cross_entropy_conditions as loss_needs
from thunder_plugin_triton.linear_cross_entropy import OF_ALL, OF_INPUT, OF_WEIGHT, backward, fake, forward, run
from thunder_plugin_triton.options import TritonOptions

_IN_PYTORCH: Final = getattr(F, "linear_cross_entropy", None)  # since 2.13


def check(
    input: TensorProxy,
    weight: TensorProxy,
    target: TensorProxy,
    bias: TensorProxy | None = None,
    class_weight: TensorProxy | None = None,
    ignore_index: Any = -100,
    reduction: Any = "mean",
    label_smoothing: Any = 0.0,
    upcast: Any = False,
    start: Any = None,
    stop: Any = None,
) -> bool | str:
    """The reason for declining a call, or True."""
    reason = need.tensors(input=input, weight=weight, bias=bias, class_weight=class_weight)
    if reason is not None:
        return reason
    return (
        _refusal(input, weight, bias, class_weight, ignore_index, reduction, label_smoothing)
        or ("there are no elements" if _rows(input, start, stop) == 0 else None)
        or loss_needs.targets(target, (_rows(input, start, stop),), input.device)
        or True
    )


def _refusal(
    input: TensorProxy,
    weight: TensorProxy,
    bias: TensorProxy | None,
    class_weight: TensorProxy | None,
    ignore_index: Any,
    reduction: Any,
    label_smoothing: Any,
) -> str | None:
    if any(one is not None and one.dtype is not input.dtype for one in (weight, bias)):
        return "input, weight and bias have different dtypes"
    if input.ndim == 0 or weight.ndim != 2 or weight.shape[1] != input.shape[-1]:
        return f"a weight of shape {list(weight.shape)} does not fit an input of shape {list(input.shape)}"
    if reduction == "none" and any(one is not None and one.requires_grad for one in (input, weight, bias)):
        return "reduction 'none' with gradients: they are computed before the cotangent of each row is known"
    return (
        loss_needs.elements(input, weight)
        or (None if weight.contiguous else "weight is not contiguous")
        or need.parameter("bias", bias, weight.shape[:1])
        or loss_needs.class_weights(class_weight, weight.shape[0])
        or loss_needs.numbers(ignore_index, reduction, label_smoothing)
    )


def _rows(input: TensorProxy, start: int | None, stop: int | None) -> Size:
    """The number of rows that have logits."""
    rows = input.numel // input.shape[-1]
    if input.ndim < 2 or (start is None and stop is None):
        return rows
    tokens = int(input.shape[-2])
    return rows // tokens * len(range(tokens)[start:stop])


def pair(input: TensorProxy, weight: TensorProxy, target: TensorProxy, *others: Any, **more: Any) -> DerivativePair:
    """The derivative pair without matmuls for gradients that are not needed."""
    bias = others[0] if others else more.get("bias")
    of_weight = weight.requires_grad or (bias is not None and bias.requires_grad)
    if input.requires_grad:
        return OF_ALL if of_weight else OF_INPUT
    return OF_WEIGHT


def run_torch(input: Tensor, linear_weight: Tensor, target: Tensor, **options: Any) -> Tensor:
    """`torch.nn.functional.linear_cross_entropy` without gradients."""
    return run(input, linear_weight, target, *_arguments(**options))


def forward_torch(
    input: Tensor, linear_weight: Tensor, target: Tensor, **options: Any
) -> tuple[Tensor, tuple[Any, ...]]:
    """`torch.nn.functional.linear_cross_entropy`, and the residuals of backward."""
    return forward(input, linear_weight, target, *_arguments(**options))


def fake_torch(input: Tensor, linear_weight: Tensor, target: Tensor, **options: Any) -> tuple[Tensor, tuple[Any, ...]]:
    """The fake implementation of `forward_torch`."""
    return fake(input, linear_weight, target, *_arguments(**options))


def check_torch(input: TensorProxy, linear_weight: TensorProxy, target: TensorProxy, **given: Any) -> bool | str:
    """The reason for declining a call of PyTorch's function, or True."""
    if given.get("options") is not None:
        return "it has options for chunks of its own"
    if not isinstance(input, TensorProxy) or input.ndim != 2:
        return "the input is implemented as rows, in two dimensions"
    if given.get("linear_bias") is not None and given.get("weight") is not None:
        return "it has a bias and weights of classes"
    return check(input, linear_weight, target, *_arguments(**given))


def _arguments(
    linear_bias: Any = None,
    weight: Any = None,
    reduction: Any = "mean",
    ignore_index: Any = None,
    label_smoothing: Any = 0.0,
    options: None = None,
) -> tuple[Any, ...]:
    """The arguments of the composite after the target, with PyTorch's defaults."""
    return linear_bias, weight, -100 if ignore_index is None else ignore_index, reduction, label_smoothing, False


def claims(options: TritonOptions) -> tuple[Claim, ...]:
    """The claims of both operations."""
    composite = Claim(composites.linear_cross_entropy, run, check, pair, variant="chunks")
    if _IN_PYTORCH is None:
        return (composite,)
    torch_pair = DerivativePair(forward_torch, backward, fake_torch)
    return composite, Claim(_IN_PYTORCH, run_torch, check_torch, torch_pair, variant="chunks")

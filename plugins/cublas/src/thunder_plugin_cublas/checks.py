"""Which calls are taken: for each function True, or the reason for which a call is declined."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_cublas import conditions


@dataclass(frozen=True, slots=True)
class Limits:
    """What does not depend on the call.

    Attributes:
        device: the type of device that products run on.
        least: products of fewer operations are declined.
    """

    device: str
    least: int


def linear(limits: Limits, input: TensorProxy, weight: TensorProxy, bias: TensorProxy | None = None) -> bool | str:
    """Of `torch.nn.functional.linear`."""
    if reason := conditions.tensors(limits.device, input=input, weight=weight, bias=bias):
        return reason
    if weight.ndim != 2:
        return "the weight is not a matrix"
    transposed = replace(weight, shape=weight.shape[::-1], stride=weight.stride[::-1])
    reason = conditions.factors(input, transposed, limits.least)
    return reason or conditions.vector(bias, weight.shape[0]) or True


def matmul(limits: Limits, input: TensorProxy, other: TensorProxy, **out: Any) -> bool | str:
    """Of `torch.matmul`."""
    return _without_out(out) or _product(limits, input, other) or True


def mm(limits: Limits, input: TensorProxy, mat2: TensorProxy, **out: Any) -> bool | str:
    """Of `torch.mm`."""
    return _without_out(out) or _product(limits, input, mat2) or True


def addmm(
    limits: Limits,
    input: TensorProxy,
    mat1: TensorProxy,
    mat2: TensorProxy,
    *,
    beta: Any = 1,
    alpha: Any = 1,
    **out: Any,
) -> bool | str:
    """Of `torch.addmm`."""
    if (beta, alpha) != (1, 1):
        return f"beta is {beta} and alpha {alpha}; sums without factors are implemented"
    reason = _without_out(out) or conditions.tensors(limits.device, input=input, mat1=mat1, mat2=mat2)
    reason = reason or _product(limits, mat1, mat2)
    if reason is not None:
        return reason
    rows, columns = math.prod(mat1.shape[:-1]), mat2.shape[1]
    if input.ndim == 1:
        return conditions.vector(input, columns) or True
    return conditions.summand(input, (rows, columns)) or True


def _product(limits: Limits, a: TensorProxy, b: TensorProxy) -> str | None:
    return conditions.tensors(limits.device, left=a, right=b) or conditions.factors(a, b, limits.least)


def _without_out(options: dict[str, Any]) -> str | None:
    given = [name for name, value in options.items() if value is not None]
    return f"{given[0]} is not implemented" if given else None

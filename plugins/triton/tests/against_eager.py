"""Compiled programs against eager PyTorch, and both against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder
from thunder.report.decisions import decision_table

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
EXECUTORS: list[Any] = ["triton"]
SLACK = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
"""Relative to the largest value: one rounding, where eager happens to be exact."""


def table(compiled: Any) -> str:
    """Who took which line, and why others did not."""
    return "\n".join(decision_table(thunder.explain(compiled).decisions))


def assert_as_accurate_as_eager(function: Callable[..., torch.Tensor], *tensors: torch.Tensor, name: str) -> Any:
    """Result and gradients by Triton: eager's metadata, and at most twice its error against float64.

    Args:
        tensors: arguments; floating-point ones get gradients.
        name: of the operation that the executor must have taken.
    """
    compiled = thunder.jit(function, executors=EXECUTORS)
    torch.manual_seed(1)
    cotangent = torch.randn_like(function(*tensors).detach().contiguous())
    mine, eager, exact = (
        _results(program, tensors, cotangent, dtype)
        for program, dtype in ((compiled, None), (function, None), (function, torch.float64))
    )
    for actual, expected, truth in zip(mine, eager, exact, strict=True):
        assert actual.dtype is expected.dtype
        assert actual.shape == expected.shape
        assert actual.stride() == expected.stride()
        if truth.numel() == 0:
            continue
        error, allowed = ((each.double() - truth).abs().max() for each in (actual, expected))
        assert error <= 2 * allowed + SLACK[actual.dtype] * truth.abs().max(), (actual.shape, error, allowed)
    taken = [each for each in thunder.explain(compiled).decisions if each.symbol.endswith(name)]
    assert taken
    assert {each.executor for each in taken} == {"triton"}, taken
    return compiled


def _results(
    program: Callable[..., torch.Tensor], tensors: tuple[torch.Tensor, ...], cotangent: torch.Tensor, dtype: Any
) -> list[torch.Tensor]:
    own = [_leaf(tensor, dtype) for tensor in tensors]
    result = program(*own)
    result.backward(cotangent.to(result.dtype))
    return [result.detach(), *[tensor.grad for tensor in own if tensor.is_floating_point()]]


def _leaf(tensor: torch.Tensor, dtype: Any) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return (tensor if dtype is None else tensor.to(dtype)).detach().requires_grad_()

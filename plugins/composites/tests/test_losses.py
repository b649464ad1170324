"""Losses that models spell out: of a part of the positions, and of converted logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pattern_programs import B, K, T, check, normal

POSITIONS: dict[str, Any] = {
    "reshape": lambda logits: logits[:, :-1].reshape(-1, 7),
    "contiguous": lambda logits: logits[..., :-1, :].contiguous().view(-1, 7),
    "flatten": lambda logits: logits[:, :-1, :].flatten(0, 1),
    "float first": lambda logits: logits.float()[..., :-1, :].contiguous().view(-1, 7),
    "float last": lambda logits: logits[:, :-1].reshape(-1, 7).float(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
@pytest.mark.slow
def test_positions_that_have_a_loss(positions: Any, dtype: torch.dtype) -> None:
    target = torch.randint(7, (B, T))[:, 1:].reshape(-1)

    def program(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(positions(F.linear(x, weight)), target)

    args = normal(B, T, K, dtype=dtype), normal(7, K, dtype=dtype)
    check(program, args, {"linear_cross_entropy": 1})


def test_other_parts_of_logits_are_no_match() -> None:
    x, weight, target = normal(B, T, K), normal(7, K), torch.randint(6, (B, T))

    def loss_of(part: Any, target: torch.Tensor) -> Any:
        return lambda x, w: F.cross_entropy(part(F.linear(x, w)).flatten(0, 1), target.flatten())

    check(loss_of(lambda logits: logits[..., :-1], target), (x, weight), {})
    check(loss_of(lambda logits: logits[:, ::2], target[:, ::2]), (x, weight), {})
    check(loss_of(lambda logits: logits[:-1], target[:-1]), (x, weight), {})


@pytest.mark.parametrize("part", [lambda logits: logits[:, :-1], lambda logits: logits[:, :-1, :]], ids=["", "whole"])
def test_the_second_of_four_dimensions_is_no_position(part: Any) -> None:
    """Nor is it where as many of the last but one give a loss of the same shape."""
    weight, target = normal(7, K), torch.randint(7, (12,))
    check(lambda x, w: F.cross_entropy(part(F.linear(x, w)).reshape(-1, 7), target), (normal(2, 3, 3, K), weight), {})


def test_a_vocabulary_that_is_cut_is_no_position() -> None:
    """As of logits that a layer pads to a multiple of 64."""
    target = torch.randint(5, (6,))
    for stop in (5, 6, -2):
        program = lambda x, w, s=stop: F.cross_entropy(F.linear(x, w)[:, :s].reshape(-1, s % 7), target)  # noqa: E731
        check(program, (normal(6, K), normal(7, K)), {})


@pytest.mark.slow
def test_conversion_before_the_loss() -> None:
    x, target = normal(B, T, 7, dtype=torch.bfloat16), torch.randint(7, (B * T,))
    spelled = [
        lambda x: F.cross_entropy(x.view(-1, 7).float(), target),
        lambda x: F.cross_entropy(x.float().view(-1, 7), target, label_smoothing=0.5),
        lambda x: F.cross_entropy(x.float().flatten(0, 1), target, torch.ones(7), reduction="none"),
    ]
    for program in spelled:
        check(program, (x,), {"upcast_cross_entropy": 1})
        check(program, (x.detach().float().requires_grad_(),), {})


SHAPES: dict[str, Any] = {
    "rows": lambda logits: logits,
    "flatten": lambda logits: logits.flatten(0, 1),
    "flatten rows": lambda logits: logits.flatten(0, -2),
    "view": lambda logits: logits.view(-1, 7),
    "reshape": lambda logits: logits.reshape(-1, logits.shape[-1]),
}
HALF = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
CLASS_WEIGHTS = pytest.mark.parametrize("class_weight", [None, torch.linspace(0.5, 2, 7)], ids=["", "class weights"])


def taken_apart(logits: torch.Tensor, target: torch.Tensor, *options: Any) -> torch.Tensor:
    """`F.cross_entropy` as autocast on a GPU has it."""
    logarithms = torch._log_softmax(logits, 1, False).to(torch.float32)
    return torch.ops.aten.nll_loss_forward.default(logarithms, target, *options)[0]


@pytest.mark.battery
@HALF
@CLASS_WEIGHTS
@pytest.mark.parametrize("reduction", [0, 1, 2], ids=["none", "mean", "sum"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_taken_apart_by_autocast(shape: Any, reduction: int, class_weight: Any, dtype: torch.dtype) -> None:
    target = torch.randint(7, (B * T,))
    rows = (B * T,) if shape is SHAPES["rows"] else (B, T)
    half = dtype is not torch.float32

    def of_linear(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return taken_apart(shape(F.linear(x, weight)), target, class_weight, reduction, -100)

    def of_logits(logits: torch.Tensor) -> torch.Tensor:
        return taken_apart(shape(logits), target, class_weight, reduction, 3)

    rounded = {"rtol": 5e-2, "atol": 5e-2}  # eager rounds the logarithms
    args = normal(*rows, K, dtype=dtype), normal(7, K, dtype=dtype)
    check(of_linear, args, {"linear_cross_entropy": 1} if half else {}, **rounded)
    check(of_logits, (normal(*rows, 7, dtype=dtype),), {"upcast_cross_entropy": 1} if half else {}, **rounded)

"""Losses that models spell out: of a part of the positions, and of converted logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.passes.pattern_programs import B, K, T, check, normal

POSITIONS: dict[str, Any] = {
    "reshape": lambda logits: logits[:, :-1].reshape(-1, 7),
    "contiguous": lambda logits: logits[..., :-1, :].contiguous().view(-1, 7),
    "flatten": lambda logits: logits[:, :-1, :].flatten(0, 1),
    "float first": lambda logits: logits.float()[..., :-1, :].contiguous().view(-1, 7),
    "float last": lambda logits: logits[:, :-1].reshape(-1, 7).float(),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=list(POSITIONS))
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

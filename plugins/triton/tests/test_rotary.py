"""Rotary embeddings: layouts of queries and of tables of cosines."""

from __future__ import annotations

import pytest
import torch
from against_eager import DEVICE, assert_as_accurate_as_eager, table

import thunder

BATCH, HEADS, TOKENS, SIZE = 2, 3, 5, 12


def embed(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    rotated = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (rotated * sin)).to(dtype=x.dtype)


def tensor(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE)


CASES = {
    "heads first": (tensor(BATCH, HEADS, TOKENS, SIZE), (TOKENS, SIZE)),
    "tokens first in memory": (tensor(BATCH, TOKENS, HEADS, SIZE).transpose(1, 2), (BATCH, 1, TOKENS, SIZE)),
    "tokens first": (tensor(BATCH, TOKENS, HEADS, SIZE), (1, TOKENS, 1, SIZE)),
    "a part of larger rows": (tensor(BATCH, TOKENS, 3, HEADS, 20)[:, :, 1, :, 4:16].transpose(1, 2), (1, TOKENS, SIZE)),
    "three dimensions": (tensor(BATCH, TOKENS, SIZE), (BATCH, TOKENS, SIZE)),
    "one token": (tensor(BATCH, HEADS, 1, SIZE), (1, 1, 1, SIZE)),
    "two dimensions": (tensor(TOKENS, SIZE), (TOKENS, SIZE)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_accuracy(case: str, dtype: torch.dtype) -> None:
    """The halves of the tables differ, which those of models do not."""
    x, shape = CASES[case]
    for wide in (False, True):
        cos, sin = (tensor(*shape).to(torch.float32 if wide else dtype) for _ in range(2))

        def rotate(x: torch.Tensor, cos: torch.Tensor = cos, sin: torch.Tensor = sin) -> torch.Tensor:
            wider = torch.promote_types(cos.dtype, x.dtype) if x.dtype is torch.float64 else cos.dtype
            return embed(x, cos.to(wider), sin.to(wider))

        strided = x.to(dtype) if dtype is not x.dtype else x
        assert_as_accurate_as_eager(rotate, strided, name="rotary_embedding")


def test_a_cotangent_in_any_layout() -> None:
    x, (cos, sin) = tensor(2, 3, 5, 8).requires_grad_(), (tensor(5, 8), tensor(5, 8))
    compiled = thunder.jit(embed, executors=["triton"])
    for cotangent in (tensor(8, 5, 3, 2).permute(3, 2, 1, 0), tensor(1).expand(2, 3, 5, 8)):
        mine, eager = (torch.autograd.grad(each(x, cos, sin), x, cotangent) for each in (compiled, embed))
        torch.testing.assert_close(mine, eager)


def test_what_is_declined_says_why() -> None:
    calls = {
        "cos or sin requires grad": (tensor(3, 8), tensor(3, 8).requires_grad_(), tensor(3, 8)),
        "differ in all dimensions": (tensor(2, 3, 4, 8), tensor(2, 3, 4, 8), tensor(2, 3, 4, 8)),
        "is not broadcastable to": (tensor(1, 3, 8), tensor(2, 3, 8), tensor(2, 3, 8)),
        "not adjacent": (tensor(8, 3).t(), tensor(3, 8), tensor(3, 8)),
        "strides [0, 1]": (tensor(1, 8).expand(3, 8), tensor(3, 8), tensor(3, 8)),
    }
    for reason, arguments in calls.items():
        compiled = thunder.jit(embed, executors=["triton"])
        torch.testing.assert_close(compiled(*arguments), embed(*arguments))
        assert reason in table(compiled), (reason, table(compiled))

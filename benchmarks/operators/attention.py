"""Attention. Sizes are batch, query heads, key heads, tokens, head size, and whether it is causal."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmarks.operators.case import Case, Problem, Work, normal


def attention(dtype: torch.dtype, batch: int, heads: int, keys: int, tokens: int, size: int, causal: int) -> Problem:
    """PyTorch's function, with ``enable_gqa`` if there are fewer key heads than query heads."""

    def program(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=bool(causal), enable_gqa=heads != keys
        )

    arguments = [normal(batch, count, tokens, size, dtype=dtype) for count in (heads, keys, keys)]
    # Two matmuls forward, five backward, which recomputes one. A causal mask halves each.
    matmul = 2.0 * batch * heads * tokens * tokens * size / (2 if causal else 1)
    return Problem(program, tuple(arguments), work=Work(2 * matmul, 5 * matmul))


CASES = (
    Case(
        "attention",
        "F.scaled_dot_product_attention",
        attention,
        ((4, 32, 32, 2048, 64, 1), (4, 32, 4, 2048, 64, 1), (1, 32, 32, 4096, 128, 1), (1, 32, 32, 4096, 128, 0)),
        ((1, 4, 4, 32, 32, 1), (1, 4, 2, 32, 32, 1)),
    ),
)

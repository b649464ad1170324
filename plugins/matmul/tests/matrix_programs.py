"""Programs full of products, transposes and conversions: for the conformance suite, and random ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from thunder_testing import Arguments
from thunder_testing.conformance.transform_programs import TransformProgram


class Gated(nn.Module):
    """A gated feed-forward layer with a residual: two linear layers read one value."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate, self.up, self.down = (nn.Linear(6, 6, bias=False, dtype=dtype) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.5
        for _ in range(2):
            x = self.down(F.silu(self.gate(x)) * self.up(x)) + x
        return x


def sums(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Sums of products, of which some summands are needed again, returned, broadcast or vectors."""
    product, kept, row = a @ b, b @ a, a.sum(0)
    batch = torch.bmm(torch.stack([a, b]), torch.stack([b, b]))
    return (
        product * 2 + (a @ a + b @ b) + F.linear(a, b),
        kept,
        kept + a @ b,
        torch.add(a @ a, b @ b, alpha=2),
        row + row @ b,
        a * 2 + b @ b,
        batch.sin() + torch.bmm(batch, batch),
        (a * 2).t() + a @ b,
        torch.add(a @ b, a @ a)[0],
    )


def in_memory(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Sums into arguments and parts of values, and products that are written later."""
    state = a.detach()
    state += b @ b
    part = (a * 3)[1:]
    whole = torch.zeros(4, 4)
    whole[1:] = part + a[1:] @ b
    product = a.detach() @ b
    total = product + b @ a
    total.mul_(2)
    return state, whole, total, part


def transposes(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Copies of transposed matrices for products, for others too, and of products."""
    copy, both = a.t().contiguous(), (b * 2).t().contiguous()
    stack = torch.stack([a, b]).transpose(1, 2)
    return (
        copy @ b + copy.t() @ b,
        both @ a,
        both,
        (a @ b).t().contiguous().sin(),
        F.linear(a, b.t().contiguous()),
        torch.bmm(stack.contiguous(), stack.clone(memory_format=torch.contiguous_format)),
        F.linear(a, b.t().contiguous(), b.t().contiguous()[0]),
        a.t().clone() @ b,
        torch.mm(turned := (a * 3).t().contiguous(), turned.t()),
    )


def conversions(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Conversions there and back, of views, of results, of arguments, with and without loss."""
    half = (a * b).to(torch.bfloat16)
    wide = half.to(torch.float32)
    again = wide.t()[None].to(torch.bfloat16)
    double = wide.to(torch.float64)
    return (
        again * 2,
        wide.to(torch.bfloat16),
        wide.to(torch.float16).sin(),
        double.view(2, 8).to(torch.bfloat16).cos(),
        wide[1:].to(torch.bfloat16) + 1,
        wide.t().contiguous().to(torch.bfloat16).exp(),
        a.to(torch.float64).to(torch.float32) * 2,
        (a * 8).to(torch.int32).to(torch.int64).to(torch.int32) + 1,
        half.expand(2, 4, 4).to(torch.float32).sum(0),
    )


def rewritten(a: Tensor, b: Tensor) -> tuple[Tensor, ...]:
    """Conversions of what is written before or afterwards."""
    half = (a * b).to(torch.bfloat16)
    wide = half.to(torch.float32).detach()
    back = wide.to(torch.bfloat16)
    wide.add_(1)
    last = wide.to(torch.bfloat16)
    last[0] = 3
    return back * 2, wide * 2, last.to(torch.float32) + 1


def _program(function: Callable[..., Any]) -> TransformProgram:
    return TransformProgram(
        function.__name__, lambda: function, lambda: Arguments(torch.randn(4, 4), torch.randn(4, 4))
    )


PROGRAMS = (
    *map(_program, (sums, in_memory, transposes, conversions, rewritten)),
    TransformProgram("gated", Gated, lambda: Arguments(torch.randn(2, 3, 6))),
    TransformProgram("gated_vector", Gated, lambda: Arguments(torch.randn(1, 1, 6))),
)

Step = tuple[int, int, int]

OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
    lambda x, y: x @ y,
    lambda x, y: x + y,
    lambda x, y: F.linear(x, y),
    lambda x, y: x @ y + x,
    lambda x, y: x.t(),
    lambda x, y: x.t().contiguous(),
    lambda x, y: x.clone(),
    lambda x, y: x.sin(),
    lambda x, y: x.float(),
    lambda x, y: x.double(),
    lambda x, y: x.to(torch.bfloat16).to(x.dtype),
    lambda x, y: x.view(2, 2, 2, 2).reshape(4, 4) if x.is_contiguous() else x.reshape(4, 4),
    lambda x, y: torch.bmm(x[None], y[None])[0],
    lambda x, y: torch.addmm(x, y, y),
    lambda x, y: x[:2].expand(2, 2, 4).reshape(4, 4),
)


def random_program(steps: list[Step], results: list[int]) -> Callable[..., tuple[Tensor, ...]]:
    """A function of 4x4 matrices: each step applies an operation to two values made before."""

    def program(*inputs: Tensor) -> tuple[Tensor, ...]:
        pool = list(inputs)
        for operation, one, other in steps:
            x, y = pool[one % len(pool)], pool[other % len(pool)]
            if operation not in (4, 5, 6, 7, 8, 9, 10, 11, 14) and x.dtype is not y.dtype:
                y = y.to(x.dtype)
            pool.append(OPERATIONS[operation](x, y) * (0.5 if operation in (0, 2, 3, 12, 13) else 1))
        return tuple(pool[index % len(pool)] for index in results)

    return program

"""What definitions compute, against eager PyTorch; by the tests' own interpreter of nvFuser's operations."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from nvfuser_programs import check, compiled, reasons, regions
from torch import nn

import thunder

INF, NAN = math.inf, math.nan
SIGNS = torch.tensor([-7.5, -3.0, -0.0, 0.0, 2.0, 3.7, 8.0, INF, -INF, NAN])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.gelu(self.linear(self.norm(x)), approximate="tanh") * torch.softmax(x, -1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.slow
def test_training(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[Block() for _ in range(5)]).to(dtype)
    x = torch.randn(4, 16, dtype=dtype)
    program = compiled(model)
    found = []
    for run in (program, model):
        model.zero_grad()
        loss = F.cross_entropy(run(x).float(), torch.tensor([1, 2, 3, 4]))
        loss.backward()
        found.append([loss.detach(), *[parameter.grad.clone() for parameter in model.parameters()]])
    tolerance = 2e-2 if dtype is torch.bfloat16 else 1e-5
    torch.testing.assert_close(*found, rtol=tolerance, atol=tolerance)
    calls = regions(program)
    assert len(calls) > len(set(calls))  # equal layers are compiled once
    assert all("matmul" in reason or "linear" in reason for reason in reasons(program))


def test_cross_entropy() -> None:
    logits, target = torch.randn(6, 9), torch.tensor([1, 8, 0, -100, 3, 4])

    def program(logits: torch.Tensor) -> torch.Tensor:
        return -F.log_softmax(logits, -1).gather(1, target.clamp(min=0)[:, None]).squeeze(1)

    check(program, logits)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, y: torch.div(x, y, rounding_mode="floor"),
        lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: x // -2.5,
        lambda x, y: torch.remainder(x, y),
        lambda x, y: torch.fmod(x, y),
        lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), torch.fmax(x, y), torch.fmin(x, y)),
        lambda x, y: (x.clamp(-1, 3), torch.clamp(x, min=y), x.relu(), x.sign(), x.signbit(), x.abs()),
        lambda x, y: (x < y, x == y, x != 2, x >= y, x.isnan(), x.isinf(), x.logical_not(), x.isfinite()),
        lambda x, y: (torch.where(x > 0, x, 1.0), torch.where(y > 0, 2, y), x.logical_xor(y)),
        lambda x, y: (x.amax(), y.amin(0), torch.stack([x, y]).amax(0), x.any(), x.round(), x.trunc()),
        lambda x, y: (F.elu(x), F.leaky_relu(x), F.hardtanh(x), x.pow(2), 2.0**x),
    ],
)
def test_signs_and_special_values(program: Any) -> None:
    x = SIGNS.repeat_interleave(len(SIGNS))
    check(program, x, SIGNS.repeat(len(SIGNS)))


def test_integers_and_truth_values() -> None:
    x, y = torch.tensor([-7, -1, 3, 8, 9]), torch.tensor([2, -3, 5, -8, 7])
    check(lambda x, y: (x // y, x % y, torch.fmod(x, y), torch.div(x, y, rounding_mode="trunc"), x / y), x, y)
    check(lambda x, y: (x & y, x | y, x ^ 3, ~x, x**2, x + 0.5, x > 2.5, x.relu(), x.sum(), x.prod(), x.float()), x, y)
    check(lambda x, y: (x.int() + y, (x > 0) + (y > 0), (x > 0) * (y > 0), (x > 0).sum(), x.exp(), x.sign()), x, y)
    check(lambda x, y: (x > 0, (x > 0) ^ (y > 0), ~(x > 0), (x > 0) == (y > 0), (x > 0).any(), (x > 0).all()), x, y)


def test_half_precision_is_rounded_like_eager() -> None:
    """Each line rounds, also where no one reads its result but the next one."""
    x, y = (torch.randn(64, dtype=torch.bfloat16) * 100 for _ in range(2))
    expected = (x * y + y) - x * y
    torch.testing.assert_close(compiled(lambda x, y: (x * y + y) - x * y)(x, y), expected, rtol=0, atol=0)


def test_layouts() -> None:
    x = torch.randn(2, 3, 4, 5)
    for given in (
        x,
        x.to(memory_format=torch.channels_last),
        x.transpose(1, 3),
        x[:, :, :, :1],
        x[:1].expand(3, 3, 4, 5),
    ):
        check(lambda x: (x * 2, x.sum(1, keepdim=True), x.relu().transpose(0, 1) + 1), given)
    check(lambda x: ((x + 1).permute(3, 1, 0, 2).contiguous(), x.clone(), torch.exp(x).reshape(6, 20)), x)


def test_moved_elements() -> None:
    x = torch.randn(4, 6)
    check(lambda x: torch.cat([x[1:3] * 2, x[:2, :].exp(), x[3:] + 1]), x)
    check(lambda x: (F.pad(x, (1, 2, 0, 3), value=-INF) + 1, (x + 1).repeat(2, 1, 3), x.exp()[:, 2] + x[:, -1]), x)
    check(lambda x: (torch.stack([x, x + 1], 1) * 2, (x * 2).split([1, 5], 1)[1] + 1, (x + 1)[None, :, None] * 2), x)
    check(lambda x: torch.slice_scatter(x, x[1:3] * 2, 0, 1, 3) + torch.select_scatter(x, x[:, 0] + 1, 1, -1), x)
    check(lambda x: (torch.full_like(x, 3.5) * x, torch.arange(6) * x, torch.zeros(6) + x, x + torch.tensor(2.0)), x)


def test_positions_that_are_data() -> None:
    x, index = torch.randn(5, 6), torch.tensor([[0, 4], [2, 1]])
    check(lambda x, i: (F.embedding(i, x) * 2, x[:, i] + 1, x[i - 5] * 2, x.index_select(1, i[0]) * 2), x, index)
    check(lambda x, i: (x.gather(1, i) * 2, x.scatter(1, i, 7.0) + 1, x.scatter(0, i, x[:2, :2]) * 2), x, index)


def test_reductions() -> None:
    x = torch.randn(3, 4, 5)
    check(lambda x: (x.sum(), x.mean((0, 2)), x.prod(1), x.amax((0, 1), keepdim=True), x.var(2), x.std((0, 1))), x)
    check(
        lambda x: (torch.var_mean(x, 1, correction=0), x.norm(dim=1), F.normalize(x), x.sum((), dtype=torch.float64)), x
    )
    check(
        lambda x: (x.softmax(1), x.log_softmax(0), F.group_norm(x, 2), F.layer_norm(x, (4, 5)), F.rms_norm(x, (5,))), x
    )
    check(lambda x: (x.norm(1, 0), x.norm(float("inf"), 1), x.norm(float("-inf"), (0, 2), keepdim=True)), x)
    check(lambda x: (x.sum() * 2, x.mean(), x.softmax(0), x.amax(), x + 1, x.sum(0)), torch.tensor(2.5))


def test_products_where_options_allow_them() -> None:
    x, weight = torch.randn(4, 6), torch.randn(5, 6)
    check(lambda x, w: x @ w.t() + 1, x, weight, matmul=True)
    check(lambda x, w: F.linear(x, w, w[:, 0] * 2).relu(), x, weight, linear=True)
    program = compiled(lambda x, w: F.linear(x, w).relu() * 2)
    program(x, weight)
    assert reasons(program) == {"PyTorch's libraries run aten.mm.default (option matmul)"}


def test_results_share_no_memory() -> None:
    """nvFuser gives views of its inputs where there is nothing to compute."""
    x = torch.randn(3, 4)
    program = check(lambda x: (x.clone(), x.reshape(12).clone(), x * 1.0), x, shape_only=True)
    results = program(x)
    assert len({tensor.untyped_storage().data_ptr() for tensor in (x, *results)}) == 4


def test_the_report_has_the_contents_of_regions() -> None:
    program = compiled(lambda x: (x.exp() * 2).sum())
    program(torch.randn(3))
    (content,) = thunder.explain(program).entries[0].regions.contents
    assert content == "nvfuser_region_1 in computation: from 1 to 1 tensors by torch.exp, torch.mul, torch.sum"
    assert content in str(thunder.explain(program).regions)

"""Transformations of `torch.func` inside programs, of a batch whose size varies: one program, with eager's results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.nn import functional as F

import thunder
from thunder_frontend.record import batching_rules

Program = Callable[[torch.Tensor], Any]
SIZES = (3, 5, 4, 7, 2)
WEIGHT, BIAS = torch.linspace(0.5, 2, 4), torch.linspace(-1, 1, 4)
torch.manual_seed(0)
NORMED = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.GELU(), nn.Linear(5, 3))
CONVOLVED = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.MaxPool2d(2), nn.Flatten())
CLASSIFIER = nn.Sequential(nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(8, 3))
EMBEDDING = nn.Embedding(8, 3)
ATTENTION = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)


def per_sample(module: nn.Module, loss: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}
    return vmap(grad(lambda own, row: loss(functional_call(module, own, (row,)))), (None, 0))(parameters, x)


def ensemble(x: torch.Tensor) -> Any:
    stacked = {name: torch.stack([value.detach(), value.detach() * 2]) for name, value in NORMED.named_parameters()}
    loss = grad(lambda own, rows: functional_call(NORMED, own, (rows,)).square().sum())
    return vmap(loss, (0, None))(stacked, x)


def classified(output: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.reshape(1, -1), torch.ones(1, dtype=torch.int64))


def activations(row: torch.Tensor) -> torch.Tensor:
    functions = (F.gelu, F.silu, F.mish, F.elu, F.leaky_relu, F.softplus, F.hardtanh, F.hardswish, F.hardsigmoid)
    return torch.stack([function(row).square().sum() for function in (*functions, F.relu, F.logsigmoid)]).sum()


ROWS: dict[str, Program] = {
    "layer norm": vmap(lambda row: F.layer_norm(row, (4,), WEIGHT, BIAS)),
    "layer norm of batched weights": vmap(lambda row: F.layer_norm(row, (4,), row * 2, BIAS)),
    "layer norm with batched weights": vmap(lambda row: F.layer_norm(WEIGHT.expand(3, 4), (4,), row, row)),
    "cat": vmap(lambda row: torch.cat([row, WEIGHT, row[:2]], -1)),
    "cat of a closure": lambda x: vmap(lambda row: torch.cat([row[None], x]).sum(0))(x),
    "nested": lambda x: vmap(lambda a: vmap(lambda b: torch.cat([a, b]))(x))(x),
    "gather": vmap(lambda row: row.gather(-1, row.argsort()) + row.gather(0, row.argmax())),
    "scatter": vmap(lambda row: WEIGHT.scatter(0, row.argsort(), row) + row.scatter_add(0, row.argsort(), BIAS)),
    "scatter of a number": vmap(lambda row: row.scatter(0, row.argmax()[None], 2.0)),
    "cross entropy": vmap(lambda row: classified(row)),
    "jacfwd": vmap(jacfwd(lambda row: torch.cat([F.layer_norm(row, (4,), WEIGHT), row.sin()]))),
    "jacrev": vmap(jacrev(lambda row: torch.cat([F.layer_norm(row, (4,), WEIGHT, BIAS), row.sin()]))),
    "jacfwd of products": vmap(jacfwd(lambda row: torch.tanh(torch.outer(WEIGHT, BIAS) @ row))),
    "hessian": vmap(hessian(lambda row: F.layer_norm(torch.tanh(row), (4,)).pow(3).sum())),
    "hessian of a batch": lambda x: hessian(lambda own: torch.tanh(x @ own).sum())(WEIGHT),
    "activations": vmap(grad(activations)),
    "per-sample gradients": lambda x: per_sample(NORMED, classified, x),
    "ensemble": ensemble,
    "convolutions": vmap(lambda row: CONVOLVED(row.reshape(1, 1, 2, 2))),
    "gradients of convolutions": lambda x: per_sample(CLASSIFIER, classified, x.repeat(1, 4).reshape(-1, 1, 1, 4, 4)),
    "embedding": lambda x: per_sample(EMBEDDING, lambda y: y.square().sum(), (x.abs() * 4).long().clamp(max=7)),
    "attention": vmap(lambda row: ATTENTION(row.reshape(1, 1, 4).expand(1, 3, 4))),
    "average": vmap(grad(lambda row: F.avg_pool2d(row.reshape(1, 1, 2, 2), 2).square().sum())),
}


@pytest.mark.battery
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("name", ROWS)
def test_a_batch_of_any_size(name: str) -> None:
    program = ROWS[name]
    compiled = thunder.jit(program, executors=[])
    for size in SIZES:
        x = torch.randn(size, 4, generator=torch.Generator().manual_seed(size))
        torch.testing.assert_close(compiled(x), program(x))
    assert thunder.cache_misses(compiled) == 2


def test_rules_are_installed_while_a_call_is_recorded() -> None:
    def rules() -> int:
        return sum(batching_rules.BATCHED in operator.py_kernels for operator in batching_rules._KERNELS)

    assert rules() == 0
    with batching_rules.installed(), batching_rules.installed():
        assert rules() == len(batching_rules._KERNELS)
        torch.testing.assert_close(vmap(lambda row: torch.cat([row, row]))(torch.eye(2)), torch.eye(2).repeat(1, 2))
    assert rules() == 0

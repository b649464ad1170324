"""A program that is recorded or transformed a second time: the report names each retry, with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import thunder


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def gradient(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    return torch.autograd.grad((leaf * leaf).sum(), leaf)[0]


class Router(nn.Module):
    """Depends on values, though its result has the shape of its argument."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.where(x[:, 0] > 0.5)[0]
        return torch.zeros_like(x).index_add(0, rows, x[rows] * int(rows.sum().item() % 3 + 1))


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.router(x) * 2


CASES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "none": (lambda x: x.sin(), ()),
    "values": (branch, ("values of this call are read and checked in each run, because bool() needs the value",)),
    "gradients": (gradient, ("it is recorded again, because torch.autograd.grad runs autograd",)),
    "module": (Routed(), ("Router is one op, because the shape of the result of torch.where depends on the value",)),
}


@pytest.mark.parametrize("name", CASES)
def test_each_has_a_line(name: str) -> None:
    program, expected = CASES[name]
    compiled = thunder.jit(program)
    x = torch.tensor([[0.75, 1.0], [0.25, 3.0]])
    torch.testing.assert_close(compiled(x), program(x))
    report = thunder.explain(compiled)
    retries = [str(retry) for retry in report.entries[-1].retries]
    assert len(retries) == len(expected)
    for one, start in zip(retries, expected, strict=True):
        assert one.startswith(start)
        assert f"  once more: {one}" in str(report.programs)


def test_sizes_that_become_constants_are_told_once() -> None:
    namespace: dict[str, Any] = {"type": type}  # the name cannot lead to another function
    exec("def scaled(n, x):\n    return x * n if type(n) is int else x\n", namespace)
    scaled = namespace["scaled"]
    compiled = thunder.jit(scaled)
    for n in range(3):
        torch.testing.assert_close(compiled(n, torch.ones(2)), scaled(n, torch.ones(2)))
    report = thunder.explain(compiled)
    (retry,) = [retry for entry in report.entries for retry in entry.retries]
    assert retry.change == "all sizes are constants"
    assert str(report.programs).count(retry.reason) == 1

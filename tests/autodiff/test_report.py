"""What `thunder.explain` reports about training."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import nn

import thunder
from thunder.report.compile_report import EntryReport
from thunder.report.training_report import DerivativeReport, TrainingReport


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient if float(x.sum()) > 0 else gradient  # looks at values


def entry_of(program: Any, *arguments: Any, **options: Any) -> EntryReport:
    compiled = thunder.jit(program, **options)
    compiled(*arguments)
    return thunder.explain(compiled).entries[0]


def leaf(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, requires_grad=True)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4), nn.Softmax(-1))


def test_sizes() -> None:
    training = entry_of(model(), torch.randn(2, 8)).training
    assert training is not None
    assert training.sources == {"a hand-written rule": 2, "PyTorch's autograd": 2}
    symbols = {item.symbol: item.lines for item in training.derivatives}
    assert symbols["torch.nn.functional.linear"] == 2
    # what GELU takes and gives
    assert (training.saved_values, training.saved_bytes) == (2, 4 * (2 * 16 + 2 * 16))
    assert training.saved_results == 1  # what softmax gives
    assert training.saved_inputs == 2  # x and the second weight
    assert training.forward_lines == 4
    assert training.backward_lines > 4
    assert (training.recomputed, training.recompute) == (0, "cheap")


def test_recomputation() -> None:
    eager, again = (
        entry_of(model(), torch.randn(2, 8), recompute=policy).training for policy in ("none", "aggressive")
    )
    assert eager is not None
    assert again is not None
    assert again.recomputed > eager.recomputed == 0
    assert again.saved_bytes < eager.saved_bytes
    assert again.recompute == "aggressive"
    budget = entry_of(model(), torch.randn(2, 8), recompute={"budget": 0.5}).training
    assert budget is not None
    assert budget.recompute == {"budget": 0.5}


def test_derivatives_at_run_time() -> None:
    entry = entry_of(lambda x: Cube.apply(x).sin(), leaf(3))
    assert entry.training is not None
    assert entry.training.sources["eager at run time"] == 1
    (derivative,) = [item for item in entry.training.derivatives if item.source == "eager at run time"]
    assert derivative.reason
    assert entry.as_recorded is None


def test_derivatives_of_pytorch() -> None:
    training = entry_of(lambda x: torch.special.i0(x.square()), leaf(3)).training
    assert training is not None
    assert training.sources == {"a hand-written rule": 1, "PyTorch's autograd": 1}


def test_as_recorded() -> None:
    def with_gradient(x: torch.Tensor) -> Any:
        y = x * 2
        return y, torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    entry = entry_of(with_gradient, leaf(3))
    assert entry.training is None
    assert entry.as_recorded is not None
    assert entry.as_recorded.startswith("torch.autograd.grad reads or changes state that traces do not model")
    assert "test_report.py" in entry.as_recorded


def test_without_gradients() -> None:
    for entry in (entry_of(model().requires_grad_(False), torch.randn(2, 8)), entry_of(torch.sin, torch.ones(3))):
        assert (entry.training, entry.as_recorded) == (None, None)


def test_text_and_json() -> None:
    compiled = thunder.jit(model())
    compiled(torch.randn(2, 8))
    report = thunder.explain(compiled)
    text = f"{report.training}\n"
    assert "operations differentiated: 2 by a hand-written rule, 2 by PyTorch's autograd\n" in text
    assert "forward (4 operations) saves 2 values (256 bytes), 1 result and 2 inputs for backward (" in text
    assert "values recomputed in backward: 0 (recompute='cheap')" in text
    training = json.loads(report.to_json())["entries"][0]["training"]
    assert training["saved_bytes"] == 256
    assert sum(item["lines"] for item in training["derivatives"]) == 4


def test_text_of_remarks() -> None:
    derivatives = (
        DerivativeReport("torch.sin", "a hand-written rule", "", 3),
        DerivativeReport("strange", "eager at run time", "it looks at values", 2),
    )
    report = TrainingReport(derivatives, 10, 20, 7, 3 << 20, 2, 1, 4, "none")
    assert report.lines() == (
        "operations differentiated: 3 by a hand-written rule, 2 by eager at run time",
        "  2 x strange by eager at run time, since it looks at values",
        "forward (10 operations) saves 7 values (3.0 MiB), 2 results and 1 input for backward (20 operations)",
        "values recomputed in backward: 4 (recompute='none')",
    )

"""Biases of linear layers that their readers add."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.ir.program import compile_trace
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_layouts.separate_bias import SeparateBias
from thunder_testing import Comparison, assert_same_behaviour
from thunder_testing.compare import Arguments
from thunder_testing.pointwise import Pointwise

X, WEIGHT, BIAS = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)


def biases(program: Any, *args: torch.Tensor, executors: tuple[Any, ...] = ()) -> list[bool]:
    """Whether each linear layer of a program still has its bias after the pass, which changes no value."""
    acquired = front_end.record(program, args, {})
    after = SeparateBias().run(acquired.trace, TransformContext(Phase.INFERENCE, executors=executors))
    verify(after)
    results = [compile_trace(trace)(*acquired.inputs) for trace in (acquired.trace, after)]
    torch.testing.assert_close(*results)
    return [len(line.args) == 3 for line in after.symbols if line.symbol.name.endswith("linear")]


@pytest.mark.parametrize(
    ("program", "whole"),
    [
        (lambda x, w, b: F.gelu(F.linear(x, w, b)), [False]),
        (lambda x, w, b: ((y := F.linear(x, w, b)) * 2, y.sin()), [False]),
        (lambda x, w, b: F.linear(x[0, 0], w, b).relu(), [False]),
        (lambda x, w, b: F.linear(x, w, b), [True]),
        (lambda x, w, b: ((y := F.linear(x, w, b)), y.sin()), [True]),
        (lambda x, w, b: F.linear(x, w, b).sum(-1), [True]),
        (lambda x, w, b: (y := F.linear(x, w, b)).sin() + y.amax(), [True]),
        (lambda x, w, b: F.linear(x, w).sin() + b, [False]),
    ],
)
def test_which_layers(program: Any, whole: list[bool]) -> None:
    assert biases(program, X, WEIGHT, BIAS) == whole


def test_on_another_device_layers_stay_whole() -> None:
    acquired = front_end.record(
        lambda x, w, b: F.linear(x, w, b).relu(), (X.to("meta"), WEIGHT.to("meta"), BIAS.to("meta")), {}
    )
    assert SeparateBias().run(acquired.trace, TransformContext(Phase.INFERENCE)) is acquired.trace


def test_a_layer_that_is_claimed_stays_whole() -> None:
    linear = OperatorExecutor("mine", (Claim(F.linear, run=F.linear),))
    assert biases(lambda x, w, b: F.linear(x, w, b).relu(), X, WEIGHT, BIAS, executors=(linear,)) == [True]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training(dtype: torch.dtype) -> None:
    """Only where somebody fuses."""
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 3), nn.Tanh(), nn.Linear(3, 2)).to(dtype)
    tolerance = 1e-5 if dtype is torch.float32 else 5e-2
    comparison = Comparison(tolerance, tolerance, gradients=True, gradient_rtol=tolerance, gradient_atol=tolerance)
    compiled = []

    def compile(module: Any) -> Any:
        compiled.append(thunder.jit(module, executors=[Pointwise()]))
        return compiled[-1]

    assert_same_behaviour(model, lambda: Arguments(torch.randn(6, 4, dtype=dtype)), compile, comparison=comparison)
    lines = [line for line in thunder.last_traces(compiled[0])[-1].symbols if line.symbol.name.endswith("linear")]
    assert [len(line.args) for line in lines] == [2, 2, 3]
    alone = thunder.jit(model, executors=[])
    alone(torch.randn(6, 4, dtype=dtype))
    lines = [line for line in thunder.last_traces(alone)[-1].symbols if line.symbol.name.endswith("linear")]
    assert [len(line.args) for line in lines] == [3, 3, 3]

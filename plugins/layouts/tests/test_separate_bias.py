"""Biases of layers that their readers add."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_core.ir.verifier import verify
from thunder_core.passes.transform import Phase, TransformContext
from thunder_frontend.record.front_end import front_end
from thunder_plugin_layouts import separate_bias
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
    return [_has_bias(line) for line in after.symbols if line.symbol.name.endswith("linear")]


def _has_bias(line: Any) -> bool:
    return len(line.args) > 2 and line.args[2] is not None


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


IMAGES = torch.randn(2, 4, 5, 6)


@pytest.mark.parametrize(
    ("program", "image"),
    [
        (lambda x, w, b: F.conv2d(x, w, b, padding=1).relu(), IMAGES),
        (lambda x, w, b: F.conv2d(x, w, b, 2, "valid").permute(0, 2, 3, 1).sum(-1), IMAGES),
        (lambda x, w, b: F.conv2d(x, w, b).sin(), IMAGES[0]),
        (lambda x, w, b: F.conv2d(x, w, b).sin(), IMAGES.to(memory_format=torch.channels_last)),
        (lambda x, w, b: F.conv1d(x, w[:, :, 0], b).sin(), IMAGES[:, :, 0]),
        (lambda x, w, b: F.conv3d(x, w[:, :, None], b).sin(), IMAGES[:, :, None]),
        (lambda x, w, b: F.conv2d(x, w, None).sin(), IMAGES),
    ],
)
def test_convolutions(program: Any, image: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    arguments = (image, torch.randn(4, 4, 3, 3), torch.randn(4))

    def compile(function: Any) -> Any:
        return thunder.jit(function, executors=[Pointwise()])

    whole = compile(program)
    expected = whole(*arguments)
    monkeypatch.setitem(separate_bias.SEPARATE, Tag.CONVOLUTION, "cpu")
    separate = compile(program)
    torch.testing.assert_close(separate(*arguments), expected)
    assert separate(*arguments).stride() == expected.stride()
    (line,) = [one for one in thunder.last_traces(separate)[-1].symbols if "conv" in one.symbol.name]
    assert not _has_bias(line)
    depthwise = compile(lambda x, w, b: F.conv2d(x, w[:, :1], b, groups=4).sin())
    depthwise(IMAGES, *arguments[1:])
    assert _has_bias(next(one for one in thunder.last_traces(depthwise)[-1].symbols if "conv" in one.symbol.name))
    returned = compile(lambda x, w, b: F.conv2d(x, w, b))
    returned(IMAGES, *arguments[1:])
    assert _has_bias(next(one for one in thunder.last_traces(returned)[-1].symbols if "conv" in one.symbol.name))


def test_gradients_of_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel of backward does not compute that of the bias."""
    monkeypatch.setitem(separate_bias.SEPARATE, Tag.CONVOLUTION, "cpu")
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.GELU(), nn.Conv2d(8, 4, 1, bias=False), nn.Tanh())
    compiled = []

    def compile(module: Any) -> Any:
        compiled.append(thunder.jit(module, executors=[Pointwise()]))
        return compiled[-1]

    comparison = Comparison(1e-5, 1e-5, gradients=True, gradient_rtol=1e-5, gradient_atol=1e-5)
    assert_same_behaviour(model, lambda: Arguments(torch.randn(2, 4, 6, 6)), compile, comparison=comparison)
    lines = thunder.last_backward_traces(compiled[0])[-1].symbols
    masks = [line.args[-1] for line in lines if "convolution_backward" in line.symbol.name]
    assert [mask[2] for mask in masks] == [False, False]


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
    assert [_has_bias(line) for line in lines] == [False, False, True]
    alone = thunder.jit(model, executors=[])
    alone(torch.randn(6, 4, dtype=dtype))
    lines = [line for line in thunder.last_traces(alone)[-1].symbols if line.symbol.name.endswith("linear")]
    assert all(map(_has_bias, lines))

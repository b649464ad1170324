"""Linear layers by the fake library: results, gradients, which conversions and products are made."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from te_layers import RECIPES, Checkpointed, Gated, Plain, compiled, error, step, values
from torch import nn

import thunder
from thunder_plugin_te import formula, library

pytestmark = pytest.mark.usefixtures("calls")


def quantizations(calls: list[str]) -> int:
    return sum(call.startswith("quantize") for call in calls)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.slow
def test_results_and_gradients(recipe: str, bias: bool) -> None:
    module, x = Gated(bias=bias), values(2, 16, 32, grad=True)
    eager, found = step(module, module, x), step(compiled(module, recipe), module, x)
    assert len(found) == (8 if bias else 5)
    for actual, expected in zip(found, eager, strict=True):
        assert (actual.shape, actual.dtype, actual.stride()) == (expected.shape, expected.dtype, expected.stride())
        assert 1e-3 < error(actual, expected) < 0.15  # eight bits, and no worse than that


@pytest.mark.parametrize("recipe", RECIPES)
def test_repeated_calls_are_equal(recipe: str) -> None:
    module, x = Gated(), values(2, 16, 32, grad=True)
    program = compiled(module, recipe)
    first, second = step(program, module, x), step(program, module, x)
    assert all(map(torch.equal, first, second))


@pytest.mark.parametrize("recipe", ["current", "block"])
def test_an_input_of_two_layers_is_converted_once(calls: list[str], recipe: str) -> None:
    module, x = Gated(), values(2, 16, 32, grad=True)
    step(compiled(module, recipe), module, x)
    assert quantizations(calls) == 3 + 2 + 3  # weights, inputs, gradients of results
    split = " split" if recipe == "block" else ""
    expected = {f"gemm TN{split}": 3, "gemm NN split": 3, "gemm NT split": 3}
    assert Counter(call for call in calls if call.startswith("gemm")) == expected


@pytest.mark.parametrize(("accumulation", "split"), [("always", 0), ("forward", 6), ("never", 9)])
def test_fast_accumulation(calls: list[str], accumulation: str, split: int) -> None:
    module, x = Gated(), values(2, 16, 32, grad=True)
    step(compiled(module, fast_accumulation=accumulation), module, x)
    assert sum(call.endswith("split") for call in calls) == split


def test_formats() -> None:
    """E5M2 has two bits of mantissa, E4M3 three."""
    module, x = Gated(), values(2, 16, 32, grad=True)
    eager = step(module, module, x)
    errors = {
        name: error(step(compiled(module, fp8_format=name), module, x)[1], eager[1]) for name in ("hybrid", "e4m3")
    }
    assert errors["e4m3"] < errors["hybrid"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_without_gradients(calls: list[str], recipe: str) -> None:
    module, x = Gated(), values(2, 16, 32)
    with torch.no_grad():
        result = compiled(module, recipe)(x)
    assert error(result, module(x)) < 0.15
    assert not any("NN" in call or "NT" in call or "update" in call for call in calls)


@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_frozen_has_no_product(calls: list[str], recipe: str) -> None:
    layer, x = nn.Linear(32, 48, bias=False, dtype=torch.bfloat16), values(16, 32, grad=True)
    layer.weight.requires_grad_(False)
    found = step(compiled(layer, recipe), layer, x)
    assert error(found[1], step(layer, layer, x)[1]) < 0.15
    assert not any("NT" in call for call in calls)
    calls.clear()
    layer.weight.requires_grad_(True)
    step(compiled(layer, recipe), layer, values(16, 32))
    assert not any("NN" in call for call in calls)


@pytest.mark.parametrize("shape", [(16, 32), (1, 16, 32), (2, 2, 8, 32)])
def test_shapes_of_inputs(shape: tuple[int, ...]) -> None:
    layer, x = nn.Linear(32, 48, dtype=torch.bfloat16), values(*shape, grad=True)
    for actual, expected in zip(step(compiled(layer), layer, x), step(layer, layer, x), strict=True):
        assert actual.shape == expected.shape
        assert error(actual, expected) < 0.15


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.slow
def test_autocast(recipe: str) -> None:
    module, x = Gated().float(), values(2, 16, 32).float().requires_grad_()
    program = compiled(module, recipe)

    def under(function: Any) -> Any:
        def call(x: torch.Tensor) -> Any:
            with torch.autocast("cpu", torch.bfloat16):
                return function(x)

        return call

    for actual, expected in zip(step(under(program), module, x), step(under(module), module, x), strict=True):
        assert actual.dtype is expected.dtype
        assert 1e-3 < error(actual, expected) < 0.15
    assert "te" in thunder.explain(program).entries[0].executors


@pytest.mark.parametrize("recipe", RECIPES)
def test_checkpoints(calls: list[str], recipe: str) -> None:
    inner, x = Gated(), values(2, 16, 32, grad=True)
    with_region, without = Checkpointed(inner), Plain(inner)
    expected = step(compiled(without, recipe), without, x)
    calls.clear()
    found = step(compiled(with_region, recipe), with_region, x)
    assert all(map(torch.equal, found, expected))
    counted = Counter(call.removesuffix(" split") for call in calls if call.startswith("gemm"))
    assert counted["gemm NN"] == counted["gemm NT"] == 3
    # what has a state runs once; the others again but for the last, whose result backward does not read
    assert counted["gemm TN"] == (3 if recipe == "delayed" else 5)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
@pytest.mark.parametrize("scaling", ["tensor", "1x128", "128x128"])
@pytest.mark.parametrize("shape", [(16, 32), (144, 272)])
def test_conversions_are_those_of_the_formulas(scaling: Any, form: Any, columns: bool, shape: tuple[int, int]) -> None:
    matrix = values(*shape) * 3
    matrix[5] = 0
    found = library.quantize(matrix, scaling, form, columns)
    expected = formula.converted(matrix, scaling, form, columns)
    for actual, right in zip(found, expected, strict=True):
        assert (actual.dtype, actual.stride()) == (right.dtype, right.stride())
        torch.testing.assert_close(actual, right, rtol=1e-6, atol=0)
    numbers = formula.values_of(found[0], found[1], scaling, form)
    assert error(numbers, matrix) < (0.04 if form == "e4m3" else 0.08)


def test_zeros_and_infinities_are_converted() -> None:
    for filling in (0.0, float("inf"), 1e-38):
        parts = formula.converted(torch.full((16, 16), filling), "tensor", "e4m3", True)
        assert parts[1].isfinite().all()
        assert (parts[1] > 0).all()

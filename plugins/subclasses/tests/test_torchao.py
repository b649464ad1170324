"""Quantized weights of torchao, against eager: inference, and training of low-rank updates beside frozen weights."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from wrapper_classes import assert_same, numbers

import thunder

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of torchao about its own kernels
    torchao = pytest.importorskip("torchao.quantization", reason="torchao is not installed")
    workflows = pytest.importorskip(
        "torchao.quantization.quantize_.workflows.nf4.nf4_tensor", reason="this torchao has no NF4Tensor there"
    )

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torchao", "ignore::FutureWarning:torchao")

Configuration = Callable[[], Any]
CONFIGURATIONS: dict[str, Configuration] = {
    "int8 weights": lambda: torchao.Int8WeightOnlyConfig(version=2),
    "int8 weights and activations": lambda: torchao.Int8DynamicActivationInt8WeightConfig(version=2),
    "int4 weights": lambda: torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4),
    "int4 weights and int8 activations": lambda: torchao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4),
    "float8 weights": lambda: torchao.Float8WeightOnlyConfig(),
}


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(64, 128)
        self.down = nn.Linear(128, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x))) + x


class LowRank(nn.Module):
    """A frozen linear layer with a low-rank update."""

    def __init__(self, base: nn.Module) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(128, 4, bias=False), nn.Linear(4, 128, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class NF4Linear(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(workflows.to_nf4(weight, 64, 64), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


def mlp(dtype: torch.dtype = torch.float32) -> Mlp:
    torch.manual_seed(0)
    return Mlp().to(dtype)


def quantized(configuration: Configuration, dtype: torch.dtype = torch.float32) -> Mlp:
    model = mlp(dtype)
    torchao.quantize_(model, configuration())
    return model


def low_rank(name: str) -> nn.Module:
    torch.manual_seed(0)
    weights = [numbers(128, 128, seed=seed) / 8 for seed in range(2)]
    if name == "NF4":
        return nn.Sequential(nn.Linear(128, 128), *[LowRank(NF4Linear(weight)) for weight in weights])
    layers = [LowRank(nn.Linear(128, 128)) for _ in weights]
    model = nn.Sequential(nn.Linear(128, 128), *layers)
    torchao.quantize_(model, CONFIGURATIONS[name](), filter_fn=lambda _, path: path.endswith("base"))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.slow
def test_quantized_modules(name: str, dtype: torch.dtype) -> None:
    model = quantized(CONFIGURATIONS[name], dtype)
    compiled = thunder.jit(model)
    for seed in range(2):
        x = numbers(4, 64, seed=seed).to(dtype)
        for grad in (True, False):
            with torch.set_grad_enabled(grad):
                torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 2  # with gradients, and without


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_compiled_modules_that_are_quantized(name: str) -> None:
    compiled, x = thunder.jit(mlp()), numbers(4, 64)
    torch.testing.assert_close(compiled(x), mlp()(x))
    torchao.quantize_(compiled, CONFIGURATIONS[name]())
    expected = quantized(CONFIGURATIONS[name])
    torch.testing.assert_close(compiled(x), expected(x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 2
    found, state = compiled.state_dict(), expected.state_dict()
    assert list(found) == list(state)
    assert [type(value) for value in found.values()] == [type(value) for value in state.values()]


def test_weights_of_another_class_are_another_program() -> None:
    names = ["int8 weights", "float8 weights", "int8 weights"]
    models = [quantized(CONFIGURATIONS[name]) for name in names]
    compiled, x = thunder.jit(lambda model, x: model(x)), numbers(4, 64)
    for model in models:
        torch.testing.assert_close(compiled(model, x), model(x), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) >= 2
    weight = models[0].up.weight
    given = thunder.jit(F.linear)
    torch.testing.assert_close(given(x, weight), F.linear(x, weight), rtol=0, atol=0)
    given(x, models[2].up.weight)
    assert thunder.cache_misses(given) == 1
    torch.testing.assert_close(given(x, models[1].up.weight), F.linear(x, models[1].up.weight), rtol=0, atol=0)
    assert thunder.cache_misses(given) == 2


@pytest.mark.parametrize("name", ["NF4", *CONFIGURATIONS])
@pytest.mark.slow
def test_low_rank_updates_of_quantized_weights_are_trained(name: str) -> None:
    def train(model: nn.Module, call: Callable[[Tensor], Tensor]) -> list[Any]:
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], 1e-2)
        losses = []
        for seed in range(3):
            loss = call(numbers(8, 128, seed=seed)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
        return [*losses, *[each.detach() for each in model.parameters() if each.requires_grad]]

    model, expected = low_rank(name), low_rank(name)
    compiled = thunder.jit(model)
    torch.testing.assert_close(train(model, compiled), train(expected, expected), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1
    again = low_rank(name)
    again.load_state_dict(compiled.state_dict())
    x = numbers(3, 128)
    torch.testing.assert_close(again(x), compiled(x), rtol=0, atol=0)


def test_nf4_weights_are_dequantized() -> None:
    weight = workflows.to_nf4(numbers(64, 64), 64, 64)

    def program(weight: Any) -> Any:
        return weight.to(torch.bfloat16), weight.get_original_weight().sum()

    assert_same(thunder.jit(program)(weight), program(weight))


def test_what_a_class_does_not_implement_is_refused_as_in_eager() -> None:
    weight = quantized(CONFIGURATIONS["int8 weights"]).up.weight
    with pytest.raises(NotImplementedError):
        torch.sin(weight)
    with pytest.raises(NotImplementedError):
        thunder.jit(torch.sin)(weight)


def test_copies_of_quantized_weights() -> None:
    weight = quantized(CONFIGURATIONS["int8 weights"]).up.weight
    compiled = thunder.jit(lambda weight: copy.deepcopy(weight))
    copied = compiled(weight)
    assert copied is not weight
    assert_same(copied, weight)
    assert "Int8Tensor" in str(thunder.explain(compiled).fallbacks)

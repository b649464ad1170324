"""The transform `float8_training`, and modules that torchao has converted. CPUs emulate the matmuls."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from quantization_models import FILTERS, Block, numbers
from torch import nn
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from torchao.float8.float8_linear import Float8Linear

import thunder
from thunder_core.errors import OptionError
from thunder_plugin_quantization import Float8Training
from thunder_plugin_quantization.formats import has_float8_matmuls

pytestmark = [pytest.mark.filterwarnings(each) for each in FILTERS]

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
NARROW = ("narrow", "down", "lm_head")


def converted(recipe: str) -> Block:
    config = replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    model: Any = convert_to_float8_training(Block(), config=config, module_filter_fn=lambda _, path: path not in NARROW)
    return model


def trained(model: nn.Module, call: Any) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for seed in range(2):
        loss = call(numbers(16, 64, seed=seed)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return [*losses, *[each.detach() for each in model.parameters()]]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.slow
def test_training_is_that_of_torchao(recipe: str) -> None:
    model, expected = Block(), trained(eager := converted(recipe), eager)
    compiled = thunder.jit(model, transforms=[{"float8_training": {"recipe": recipe, "emulate": True}}])
    # The optimizer is that of the given module, which has the same parameters.
    torch.testing.assert_close(trained(model, compiled), expected, rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1
    assert type(compiled.up) is Float8Linear
    assert type(model.up) is nn.Linear
    assert list(compiled.state_dict()) == list(model.state_dict())
    notes = thunder.explain(compiled).module_notes
    assert notes[0] == f"float8_training: 1 x Float8Linear with recipe {recipe}"
    assert "  not changed: narrow: its features (36, 128) are not multiples of 16" in notes


@pytest.mark.slow
def test_modules_that_the_user_converted_train_as_they_are() -> None:
    eager = converted("tensorwise")
    model = copy.deepcopy(eager)
    torch.testing.assert_close(trained(model, thunder.jit(model)), trained(eager, eager), rtol=0, atol=0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device without float8")
def test_what_float8_needs() -> None:
    with pytest.raises(OptionError, match=r"compute capability 8.9 or newer, and it is on cpu(?s:.*)set emulate"):
        thunder.jit(Block(), transforms=["float8_training"])
    with pytest.raises(OptionError, match="no recipe 'blockwise'"):
        Float8Training(recipe="blockwise")
    assert not has_float8_matmuls(torch.device("cpu"))


def test_layers_that_cannot_be_replaced() -> None:
    model = Block().eval()
    model.up.register_forward_hook(lambda *_: None)
    with pytest.raises(OptionError, match="up: it has hooks"):
        Float8Training(emulate=True).on_module(model)
    layer = nn.Linear(32, 32).eval()
    assert type(Float8Training(emulate=True).on_module(layer)) is Float8Linear
    assert not Float8Training(emulate=True).on_module(layer).training
    with pytest.raises(OptionError, match="set in_place to false"):
        Float8Training(emulate=True, in_place=True).on_module(layer)

"""Low-rank adapters: the transform `lora`, and adapters in files."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from quantization_models import FILTERS, Block, numbers
from torch import Tensor, nn

import thunder
from thunder_core.errors import OptionError
from thunder_plugin_quantization import (
    LoraLinear,
    add_lora,
    load_lora,
    lora_state_dict,
    merge_lora,
    quantize,
    save_lora,
)

pytestmark = [pytest.mark.filterwarnings(each) for each in FILTERS]

R, ALPHA = 4, 6.0


def filled(module: nn.Module) -> Any:
    """The module, whose adapters have an effect."""
    for name, parameter in module.named_parameters():
        if name.rpartition(".")[2] == "lora_B":
            parameter.data.copy_(numbers(*parameter.shape) / 10)
    return module


def compiled_with(model: nn.Module, weights: str | None = None, **options: Any) -> Any:
    quantization = [] if weights is None else [{"quantization": {"weights": weights}}]
    return filled(thunder.jit(model, transforms=[{"lora": {"r": R, "lora_alpha": ALPHA, **options}}, *quantization]))


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: each for name, each in module.named_parameters() if each.requires_grad}


def dense(weight: Tensor) -> Tensor:
    return F.linear(torch.eye(weight.shape[1], dtype=weight.dtype), weight.detach()).t()


def formula(model: Any, adapters: dict[str, Tensor], x: Tensor) -> Tensor:
    """`Block` by the formula of adapters."""

    def layer(name: str, x: Tensor) -> Tensor:
        base, (a, b) = getattr(model, name), (adapters[f"{name}.lora_A"], adapters[f"{name}.lora_B"])
        bias = 0 if base.bias is None else base.bias
        return x @ dense(base.weight).t() + bias + (ALPHA / R) * (x @ a.t() @ b.t())

    return model.lm_head(layer("down", layer("narrow", F.silu(layer("up", x)))) + x)


@pytest.mark.parametrize("weights", [None, "nf4", "int4", "int8", "float8"])
def test_gradients_are_those_of_the_formula(weights: str | None) -> None:
    compiled, x = compiled_with(Block(), weights), numbers(5, 64).requires_grad_()
    compiled(x).square().mean().backward()
    adapters = {name: each.detach().clone().requires_grad_() for name, each in trainable(compiled).items()}
    assert set(adapters) == {f"{layer}.lora_{part}" for layer in ("up", "narrow", "down") for part in "AB"}
    same = x.detach().clone().requires_grad_()
    formula(thunder.original(compiled), adapters, same).square().mean().backward()
    for name, each in trainable(compiled).items():
        torch.testing.assert_close(each.grad, adapters[name].grad, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(x.grad, same.grad, rtol=1e-3, atol=1e-5)


def test_training_is_that_of_eager_and_freezes_only_the_copy() -> None:
    model = Block()
    compiled = compiled_with(model, "int4")
    eager = copy.deepcopy(thunder.original(compiled))
    losses = []
    for each in (compiled, eager):
        optimizer = torch.optim.AdamW(trainable(each).values(), 1e-2)
        for seed in range(3):
            loss = each(numbers(8, 64, seed=seed)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[:3], losses[3:], rtol=0, atol=0)
    torch.testing.assert_close(lora_state_dict(compiled), lora_state_dict(eager), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert [type(each) for each in model.children()] == [nn.Linear] * 4
    assert compiled.up.bias.data_ptr() == model.up.bias.data_ptr()


@pytest.mark.parametrize("weights", ["nf4", "int4", "int8", "float8"])
@pytest.mark.slow
def test_dequantized_weights_are_not_saved(weights: str) -> None:
    compiled, x = compiled_with(Block(), weights), numbers(1, 64)
    compiled(x).sum().backward()
    saved = thunder.last_backward_traces(compiled)[-1].inputs
    assert not [each for each in saved if each.name.startswith("t") and each.dtype.itemsize > 1 and each.shape[0] > 1]
    held = set()
    pack = lambda each: held.add(each.numel() * each.dtype.itemsize) or each  # noqa: E731
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
        thunder.original(compiled).up(x.requires_grad_())
    assert max(held) <= 64 * 128


@pytest.mark.parametrize("weights", [None, "nf4"])
@pytest.mark.slow
def test_a_whole_step_with_adapters(weights: str | None) -> None:
    model = filled(add_lora(Block() if weights is None else quantize(Block(), "nf4"), R, ALPHA))
    before = {name: each.detach().clone() for name, each in trainable(model).items()}
    step = thunder.train_step(model, F.mse_loss, torch.optim.SGD(trainable(model).values(), 0.1))
    losses = [step(numbers(8, 64), numbers(8, 32)) for _ in range(3)]
    assert losses[2] < losses[0]
    assert (thunder.explain(step).entries[0].as_recorded is None) == (weights is None)
    assert all(not torch.equal(each, before[name]) for name, each in trainable(model).items())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype: torch.dtype) -> None:
    compiled, x = compiled_with(Block(dtype)), numbers(2, 64, dtype=dtype)
    layer = compiled.up
    assert layer.lora_A.dtype == (torch.float64 if dtype is torch.float64 else torch.float32)
    assert compiled(x).dtype == dtype
    torch.testing.assert_close(compiled(x), thunder.original(compiled)(x), rtol=0, atol=0)


@pytest.mark.parametrize("weights", [None, "nf4", "int4"])
@pytest.mark.slow
def test_autocast(weights: str | None) -> None:
    compiled, x = compiled_with(Block(), weights), numbers(4, 64)
    gradients = []
    for call in (compiled, thunder.original(compiled)):
        with torch.autocast("cpu", torch.bfloat16):
            result = call(x)
        result.float().square().mean().backward()
        gradients.append([each.grad for each in trainable(compiled).values()])
        compiled.zero_grad()
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=1e-3)


def test_dropout_is_that_of_eager() -> None:
    compiled, x = compiled_with(Block(), lora_dropout=0.5), numbers(4, 64)
    results = []
    for call in (compiled, thunder.original(compiled)):
        torch.manual_seed(1)
        results.append(call(x))
    torch.testing.assert_close(*results, rtol=0, atol=0)
    compiled.eval()
    torch.testing.assert_close(compiled(x), formula(compiled, dict(compiled.named_parameters()), x))


@pytest.mark.parametrize("weights", [None, "nf4", "int8"])
def test_merged_weights(weights: str | None) -> None:
    compiled, x = compiled_with(Block(), weights), numbers(4, 64)
    merged = merge_lora(compiled)
    torch.testing.assert_close(merged(x), compiled(x), rtol=1e-4, atol=1e-4)
    assert [type(each) for each in merged.children()] == [nn.Linear] * 4
    assert list(merged.state_dict()) == list(Block().state_dict())
    assert type(compiled.up) is LoraLinear
    assert str(merged) == str(Block())


def test_adapters_are_saved_and_loaded(tmp_path: Any) -> None:
    compiled, x = compiled_with(Block(), "nf4", use_rslora=True), numbers(4, 64)
    save_lora(compiled, tmp_path / "new" / "adapters")
    assert json.loads((tmp_path / "new" / "adapters" / "adapter_config.json").read_text())["target_modules"] == [
        "down",
        "narrow",
        "up",
    ]
    loaded = load_lora(quantize(Block(), "nf4"), tmp_path / "new" / "adapters")
    torch.testing.assert_close(loaded(x), compiled(x))
    other = thunder.jit(
        Block(),
        transforms=[{"quantization": {"weights": "nf4"}}, {"lora": {"r": R, "lora_alpha": ALPHA, "use_rslora": True}}],
    )
    assert not torch.equal(other(x), compiled(x))
    assert load_lora(other, tmp_path / "new" / "adapters") is other
    torch.testing.assert_close(other(x), compiled(x), rtol=0, atol=0)
    assert thunder.cache_misses(other) == 1
    compiled.load_state_dict(other.state_dict())


def test_modules_that_are_quantized_again_load_unquantized_weights() -> None:
    merged = merge_lora(add_lora(quantize(Block(), "int8")))
    again = quantize(merged, "nf4")
    again.load_state_dict(Block().state_dict())
    torch.testing.assert_close(again.up.weight.to(torch.float32), quantize(Block(), "nf4").up.weight.to(torch.float32))
    with pytest.raises(OptionError, match=r"up.weight of the state dict cannot be quantized: some of its weights"):
        again.load_state_dict(Block().state_dict() | {"up.weight": torch.full((128, 64), torch.nan)})


def test_adapters_of_another_module_are_refused(tmp_path: Any) -> None:
    save_lora(filled(add_lora(Block(), R, ALPHA, target_modules=["up"])), tmp_path)
    before = lora_state_dict(model := add_lora(Block(), 8, ALPHA))
    with pytest.raises(OptionError, match=r"up.lora_A has the shape \(8, 64\) in the module and \(4, 64\)"):
        load_lora(model, tmp_path)
    with pytest.raises(OptionError, match="narrow has an adapter in the module only"):
        load_lora(add_lora(Block(), R, ALPHA), tmp_path)
    with pytest.raises(OptionError, match=r"has no torch.nn.Linear up"):
        load_lora(nn.Sequential(nn.Linear(2, 2)), tmp_path)
    with pytest.raises(OptionError, match="has no adapters"):
        save_lora(Block(), tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"use_dora": True}))
    with pytest.raises(OptionError, match="use_dora=True, which is not supported"):
        load_lora(Block(), tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"r": "4"}))
    with pytest.raises(OptionError, match="r='4'"):
        load_lora(Block(), tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in lora_state_dict(model).items())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target_modules": ["q_proj"]}, "'q_proj' match no torch.nn.Linear of Block"),
        ({"target_modules": ["lm_head"]}, "the option exclude names it"),
        ({"r": 0}, "r is at least 1"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        add_lora(Block(), **options)


def test_layers_without_gradients_get_no_adapter() -> None:
    model = quantize(Block(), "int8", "int8")
    with pytest.raises(OptionError, match="gradients do not pass through inputs that are quantized"):
        add_lora(model)
    with pytest.raises(OptionError, match="has adapters"):
        add_lora(add_lora(Block()))


def test_adapters_of_peft(tmp_path: Any) -> None:
    """peft's models compile once and train as in eager; the files of either are read by the other."""
    peft = pytest.importorskip("peft", reason="peft is not installed")
    config = peft.LoraConfig(r=R, lora_alpha=ALPHA, target_modules=["up", "down"])
    model = filled(peft.get_peft_model(Block(), config))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(numbers(*parameter.shape) / 10)
    eager, x = copy.deepcopy(model), numbers(4, 64)
    compiled = thunder.jit(model)
    losses = []
    for each in (compiled, eager):
        optimizer = torch.optim.AdamW(trainable(each).values(), 1e-2)
        for _ in range(2):
            loss = each(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[:2], losses[2:], rtol=0, atol=0)
    assert thunder.cache_misses(compiled) == 1
    model.save_pretrained(tmp_path / "peft")
    ours = load_lora(Block(), tmp_path / "peft")
    torch.testing.assert_close(ours(x), model(x))
    save_lora(ours, tmp_path / "ours")
    theirs = peft.PeftModel.from_pretrained(Block(), tmp_path / "ours")
    torch.testing.assert_close(theirs(x), ours(x))

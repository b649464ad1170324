"""The transform `quantization`, against eager of modules that torchao's `quantize_` has quantized."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from quantization_models import FILTERS, Block, numbers
from torch import Tensor, nn
from torchao import quantization as torchao
from torchao.quantization import NF4Tensor, PerGroup

import thunder
from thunder_core.errors import ConfigError, OptionError
from thunder_plugin_quantization import Quantization, quantize

pytestmark = [pytest.mark.filterwarnings(each) for each in FILTERS]

INT4 = {"weights": "int4", "group_size": 32}
CASES: dict[str, tuple[dict[str, Any], Callable[[], Any], float]] = {
    "int8": ({"weights": "int8"}, lambda: torchao.Int8WeightOnlyConfig(set_inductor_config=False), 0.02),
    "int8 in groups": (
        {"weights": "int8", "group_size": 4},
        lambda: torchao.Int8WeightOnlyConfig(granularity=PerGroup(4), set_inductor_config=False),
        0.02,
    ),
    "int8 activations": (
        {"weights": "int8", "activations": "int8"},
        lambda: torchao.Int8DynamicActivationInt8WeightConfig(set_inductor_config=False),
        0.03,
    ),
    "float8": ({"weights": "float8"}, lambda: torchao.Float8WeightOnlyConfig(set_inductor_config=False), 0.05),
    "int4": (
        {"weights": "int4", "group_size": 4},
        lambda: torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(4)),
        0.2,
    ),
}


def by_torchao(configuration: Any, dtype: torch.dtype) -> Block:
    model = Block(dtype)
    torchao.quantize_(model, configuration, filter_fn=lambda m, path: isinstance(m, nn.Linear) and path != "lm_head")
    return model


def compiled_with(model: nn.Module, **options: Any) -> Any:
    return thunder.jit(model, transforms=[{"quantization": options}])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_results_are_those_of_torchao(name: str, dtype: torch.dtype) -> None:
    options, configuration, tolerance = CASES[name]
    model, x = Block(dtype), numbers(4, 64, dtype=dtype)
    expected, exact = by_torchao(configuration(), dtype), model(x)
    compiled = compiled_with(model, **options)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            torch.testing.assert_close(compiled(x), expected(x), rtol=0, atol=0)
    error = (compiled(x) - exact).norm() / exact.norm()
    assert 0 < error < tolerance
    torch.testing.assert_close(thunder.original(compiled)(x), compiled(x), rtol=0, atol=0)
    torch.testing.assert_close(quantize(model, **options)(x), expected(x), rtol=0, atol=0)


def test_nf4() -> None:
    model, x = Block(), numbers(4, 64)
    compiled = compiled_with(model, weights="nf4")
    up = F.silu(F.linear(x, NF4Tensor.from_tensor(model.up.weight.detach(), 64, 128).to(torch.float32), model.up.bias))
    torch.testing.assert_close(thunder.original(compiled).up(x), F.linear(x, _nf4(model.up.weight, 128), model.up.bias))
    expected = F.linear(up, _nf4(model.narrow.weight, 8), model.narrow.bias)
    expected = model.lm_head(F.linear(expected, _nf4(model.down.weight, 4)) + x)
    torch.testing.assert_close(compiled(x), expected)
    assert type(compiled.up.weight.data) is NF4Tensor


def _nf4(weight: Tensor, scales: int) -> Tensor:
    return NF4Tensor.from_tensor(weight.detach(), 64, scales).get_original_weight()


def test_the_given_module_stays_as_it_is_and_shares_other_tensors() -> None:
    model = Block()
    before = {name: (value, value.clone()) for name, value in model.state_dict(keep_vars=True).items()}
    compiled = compiled_with(model)
    for name, value in model.state_dict(keep_vars=True).items():
        assert value is before[name][0]
        assert torch.equal(value, before[name][1])
    assert compiled.up.bias is model.up.bias
    assert compiled.lm_head.weight is model.lm_head.weight
    assert thunder.original(compiled) is not model
    assert not compiled.up.weight.requires_grad
    assert isinstance(model, Block)
    assert isinstance(compiled, Block)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.slow
def test_memory_of_original_weights_is_freed(in_place: bool) -> None:
    model = Block()
    weight = weakref.ref(model.up.weight)
    compiled = compiled_with(model, in_place=in_place)
    assert (thunder.original(compiled) is model) == in_place
    if not in_place:
        assert weight() is not None
        del model
    gc.collect()
    assert weight() is None
    assert compiled(numbers(2, 64)).shape == (2, 32)


@pytest.mark.parametrize("weights", ["int8", "int4", "float8", "nf4"])
@pytest.mark.slow
def test_state_dicts(weights: str, tmp_path: Any) -> None:
    compiled, other, x = compiled_with(Block(), weights=weights), Block(), numbers(3, 64)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.5)
    unquantized = copy.deepcopy(other.state_dict())  # the compiled module shares biases with the given one
    again = compiled_with(other, weights=weights)
    result = again(x)
    state = compiled.state_dict()
    assert list(state) == list(Block().state_dict())
    torch.save(state, tmp_path / "state.pt")
    again.load_state_dict(torch.load(tmp_path / "state.pt"))
    torch.testing.assert_close(again(x), compiled(x), rtol=0, atol=0)
    again.load_state_dict(unquantized)
    torch.testing.assert_close(again(x), result, rtol=0, atol=0)
    assert thunder.cache_misses(again) == 1
    with pytest.raises(RuntimeError, match="size mismatch"):
        again.load_state_dict(state | {"up.weight": torch.zeros(3, 3)})


def test_copies_keep_the_report() -> None:
    compiled, x = compiled_with(Block()), numbers(3, 64)
    copied = copy.deepcopy(compiled)
    torch.testing.assert_close(copied(x), compiled(x), rtol=0, atol=0)
    assert thunder.explain(copied).module_notes == thunder.explain(compiled).module_notes


def test_layers_that_stay_as_they_are_are_named() -> None:
    class Odd(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    class Model(Block):
        def __init__(self) -> None:
            super().__init__()
            self.odd, self.double = Odd(32, 32), nn.Linear(32, 32, dtype=torch.float64)
            self.parametrized = nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))
            self.embedding = nn.Embedding(32, 32)
            self.tied = nn.Linear(32, 32, bias=False)
            self.tied.weight = self.embedding.weight
            self.attention = nn.MultiheadAttention(32, 1)

    notes = "\n".join(thunder.explain(compiled_with(Model(), **INT4)).module_notes)
    for text in (
        "quantization: 2 x IntxUnpackedToInt8Tensor, ",
        "not changed: lm_head: the option exclude names it",
        "not changed: down: its 36 input features are not a multiple of the group of 32",
        "not changed: odd: Odd has a forward of its own",
        "not changed: double: its weight is float64, not float32, bfloat16, float16",
        "not changed: parametrized: its weight is computed",
        "not changed: tied: its weight is also embedding.weight",
        "not changed: attention.out_proj: the attention module that contains it reads its weight itself",
    ):
        assert text in notes, notes


@pytest.mark.parametrize(
    ("exclude", "left"),
    [
        ((), set()),
        (("0",), {"0.0", "0.1", "1.0"}),
        (("1.*",), {"1.0", "1.1"}),
        (("?.1",), {"0.1", "1.1"}),
    ],
)
def test_patterns_of_names(exclude: tuple[str, ...], left: set[str]) -> None:
    model = nn.Sequential(*[nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)) for _ in range(2)])
    result = quantize(model, exclude=exclude)
    assert {
        name for name, each in result.named_modules() if type(getattr(each, "weight", None)) is nn.Parameter
    } == left


def test_shared_layers_and_weights_are_quantized_once() -> None:
    first, second = nn.Linear(32, 32), nn.Linear(32, 32)
    second.weight = first.weight
    result = quantize(nn.Sequential(first, second, first), "int8")
    assert result[0] is result[2]
    assert result[0].weight is result[1].weight


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.Linear(32, 32), {"weights": "float8", "activations": "float8"}, "compute capability 8.9 or newer"),
        (nn.Linear(30, 32), {"weights": "int4"}, "its 30 input features are not a multiple of the group of 32"),
        (nn.Linear(32, 32, device="meta"), {}, "meta device"),
        (nn.Conv1d(4, 4, 3), {}, "it has no torch.nn.Linear"),
        (quantize(nn.Linear(32, 32)), {}, "its weight is of class Int8Tensor"),
        (nn.Linear(32, 32), {"exclude": ["*"], "weights": "nf4"}, "the option exclude names it"),
    ],
)
def test_modules_of_which_no_layer_can_be_quantized(model: nn.Module, options: Any, message: str) -> None:
    options = {"exclude": []} | options
    with pytest.raises(OptionError, match=message):
        compiled_with(model, **options)


@pytest.mark.parametrize("transform", [{"quantization": {"weights": "int4"}}, "lora", "float8_training"])
def test_optional_transforms_leave_a_module_as_it_is(transform: Any) -> None:
    name, options = (transform, {}) if isinstance(transform, str) else next(iter(transform.items()))
    model = nn.Sequential(nn.Linear(30, 30))
    entry = {name: options | {"optional": True, "exclude": [] if options else ["0"]}}
    compiled = thunder.jit(model, transforms=[entry])
    assert compiled[0].weight is model[0].weight
    assert model[0].weight.requires_grad
    (title, left) = thunder.explain(compiled).module_notes
    assert title == f"{name}: no layer can be changed"
    assert left.startswith("  not changed: 0: ")


@pytest.mark.parametrize("weights", ["int8", "nf4"])
def test_weights_that_are_zero_or_not_finite(weights: str) -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64))
    nn.init.zeros_(model[1].weight)
    nn.init.constant_(model[0].weight, torch.inf)
    compiled = compiled_with(model, weights=weights)
    assert "not changed: 0: some of its weights are not finite" in "\n".join(thunder.explain(compiled).module_notes)
    torch.testing.assert_close(thunder.original(compiled)[1](numbers(2, 64)), model[1].bias.expand(2, 64))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int8", "activations": "float8"}, "no kernels for weights 'int8' with activations 'float8'"),
        ({"weights": "nf4", "activations": "int8"}, "set activations to one of: null"),
        ({"weights": "int8", "activations": "int8", "group_size": 32}, "fixed scales"),
        ({"weights": "int4", "activations": "int8", "differentiable": True}, "gradients do not pass"),
        ({"weights": "int3"}, "int3"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compiled_with(Block(), **options)
    if "int3" not in message:
        with pytest.raises(OptionError, match=message):
            Quantization(**options)


def test_functions_are_refused() -> None:
    for program in (F.relu, thunder.jit(F.relu)):
        with pytest.raises(OptionError, match="changes modules, and relu is not a module"):
            thunder.jit(program, transforms=["quantization"])


def test_modules_that_cannot_be_copied() -> None:
    model = Block()
    model.generator = (each for each in ())
    with pytest.raises(OptionError, match="in_place"):
        compiled_with(model)
    assert compiled_with(model, in_place=True)(numbers(2, 64)).shape == (2, 32)


def test_modules_that_the_user_quantized_run_as_they_are() -> None:
    model, x = by_torchao(torchao.Int8WeightOnlyConfig(set_inductor_config=False), torch.float32), numbers(4, 64)
    torch.testing.assert_close(thunder.jit(model)(x), model(x), rtol=0, atol=0)

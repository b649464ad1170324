"""With Transformer Engine on a GPU."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from fake_transformer_engine import REAL
from te_layers import RECIPES, Checkpointed, Gated, Plain, error, step
from test_signatures import FILE, PYTHON, described, own
from torch import nn

import thunder
from thunder_plugin_te import formula, library
from thunder_plugin_te.conditions import device_refusal


def unusable() -> str:
    """Why these tests cannot run; empty if they can."""
    if not REAL:
        return "Transformer Engine is not installed: the plugin's state is 'library missing'"
    return device_refusal(torch.device("cuda", 0), "block") or ""


pytestmark = pytest.mark.skipif(bool(unusable()), reason=unusable() or "-")
SHAPES = [(256, 512), (1024, 272)]


def tensor(*shape: int, grad: bool = False) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).requires_grad_(grad)


def compiled(program: Any, recipe: str, **options: Any) -> Any:
    return thunder.jit(program, executors=[{"te": {"recipe": recipe, **options}}])


def test_parameters_of_the_library() -> None:
    import transformer_engine.pytorch as te
    from transformer_engine.pytorch.cpp_extensions import general_gemm

    saved = json.loads(FILE.read_text())
    found = {name: described(general_gemm if name == "general_gemm" else own(te, name)) for name in PYTHON}
    assert found == saved["python"]
    assert {name: int(getattr(te.DType, name)) for name in saved["formats"]} == saved["formats"]


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
@pytest.mark.parametrize("scaling", ["tensor", "1x128", "128x128"])
@pytest.mark.parametrize("shape", SHAPES)
def test_conversions_are_those_of_the_formulas(scaling: Any, form: Any, columns: bool, shape: tuple[int, int]) -> None:
    matrix = tensor(*shape) * 3
    found = library.quantize(matrix, scaling, form, columns)
    expected = formula.converted(matrix, scaling, form, columns)
    for actual, right in zip(found, expected, strict=True):
        assert (actual.shape, actual.dtype, actual.stride()) == (right.shape, right.dtype, right.stride())
        if actual.dtype is torch.uint8:
            assert float((actual != right).float().mean()) < 1e-4  # ties, by the rounding of the scale
    numbers = formula.values_of(found[0], found[1], scaling, form)
    assert error(numbers, matrix) < (0.04 if form == "e4m3" else 0.08)


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("bias", [False, True])
def test_results_and_gradients(recipe: str, bias: bool) -> None:
    module, x = Gated(512, 768, bias).cuda(), tensor(2, 256, 512, grad=True)
    program = compiled(module, recipe)
    for _ in range(2):
        for actual, expected in zip(step(program, module, x), step(module, module, x), strict=True):
            assert (actual.shape, actual.dtype, actual.stride()) == (expected.shape, expected.dtype, expected.stride())
            assert 1e-3 < error(actual, expected) < 0.15
    with torch.no_grad():
        assert error(program(x), module(x)) < 0.15


@pytest.mark.parametrize("recipe", RECIPES)
def test_checkpoints(recipe: str) -> None:
    inner, x = Gated(512, 768).cuda(), tensor(2, 256, 512, grad=True)
    with_region, without = Checkpointed(inner), Plain(inner)
    found = step(compiled(with_region, recipe), with_region, x)
    expected = step(compiled(without, recipe), without, x)
    assert all(error(one, other) < 1e-2 for one, other in zip(found, expected, strict=True))


def test_delayed_scales() -> None:
    module = nn.Linear(512, 512, bias=False, device="cuda", dtype=torch.bfloat16)
    program = compiled(module, "delayed", amax_history=4)
    for size in (3.0, 1.0):
        step(program, module, (tensor(256, 512) * size).requires_grad_())
    state = program.state_dict()
    history = state["executor_states.te.module_weight.forward_amax_history"]
    largest = [float((tensor(256, 512) * size).abs().max()) for size in (3.0, 1.0)]
    assert history[:, 0].tolist() == [0, 0, *largest]
    scale = state["executor_states.te.module_weight.forward_scale"]
    torch.testing.assert_close(float(scale[0]), 448 / largest[0], rtol=1e-5, atol=0)


def test_delayed_scales_in_cuda_graphs() -> None:
    """Replays note largest values and renew scales as calls do."""
    graphs = pytest.importorskip("thunder_plugin_cudagraphs")
    states, results = [], []
    for transforms in ([], [graphs.CUDAGraphs(copy_below=0)]):
        module = Gated(512, 768).cuda()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(tensor(*parameter.shape) / 16)
        options = {"recipe": "delayed", "amax_history": 4}
        program = thunder.jit(module, executors=[{"te": options}], transforms=transforms)
        found = []
        for turn in range(8):
            x = (tensor(2, 256, 512) * (1 + turn % 3)).requires_grad_()
            found += [one.clone() for one in step(program, module, x)]
        results.append(found)
        states.append({name: value.clone() for name, value in program.state_dict().items() if "amax" in name})
    assert {one.phase: one.replays for one in graphs.statistics(program)} == {"forward": 6, "backward": 6}
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
    assert len(states[0]) == 6
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)

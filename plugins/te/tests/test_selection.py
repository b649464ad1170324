"""Which layers are taken, and the reasons for the others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from te_layers import compiled, executor, values
from torch import nn

import thunder
from thunder_core.ir.proxy import TensorProxy
from thunder_plugin_te import conditions
from thunder_plugin_te.conditions import refusal
from thunder_plugin_te.executor import TeExecutor
from thunder_plugin_te.options import TeOptions

CUDA = torch.device("cuda", 0)
OPTIONS = TeOptions(least_features=32, least_tokens=32)


def proxy(*shape: Any, dtype: torch.dtype = torch.bfloat16, device: Any = "cpu", stride: Any = None) -> TensorProxy:
    stride = stride or torch.empty(shape, device="meta").stride()
    return TensorProxy("x", shape, stride, dtype, torch.device(device), False, 0)


@pytest.mark.parametrize(
    ("input", "weight", "reason"),
    [
        (proxy(32, 32), proxy(32, 32, device="meta"), "tensors are on cpu and meta"),
        (proxy(32, 32), proxy(32, 32, dtype=torch.float16), "dtypes torch.bfloat16, torch.float16"),
        (proxy(32, 32, dtype=torch.float32), proxy(32, 32, dtype=torch.float32), "its tensors are torch.float32"),
        (proxy(32), proxy(32, 32), "have 1 and 2 dimensions"),
        (proxy(32, 32), proxy(32), "have 2 and 1 dimensions"),
        (proxy(3, 11, 32), proxy(32, 32), "33 rows of input are not a multiple of 16"),
        (proxy(32, 40), proxy(32, 40), "40 input features are not a multiple of 16"),
        (proxy(32, 32), proxy(50, 32), "50 output features are not a multiple of 16"),
        (proxy(0, 32), proxy(32, 32), "0 rows of input are not a multiple"),
        (proxy(32, 32, stride=(1, 32)), proxy(32, 32), "the input is not contiguous"),
        (proxy(32, 32), proxy(32, 32, stride=(1, 32)), "the weight is not contiguous"),
        (proxy(16, 32), proxy(32, 32), "16 rows of input are fewer than least_tokens=32"),
        (proxy(32, 32), proxy(16, 32), "16 output features are fewer than least_features=32"),
        (proxy(32, 32), proxy(32, 32), None),
    ],
)
def test_conditions(monkeypatch: pytest.MonkeyPatch, input: Any, weight: Any, reason: str | None) -> None:
    monkeypatch.setattr(conditions, "device_refusal", lambda device, recipe: None)
    found = refusal(OPTIONS, input, weight, None)
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_a_bias_that_is_broadcast_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "device_refusal", lambda device, recipe: None)
    found = refusal(OPTIONS, proxy(32, 32), proxy(32, 32), proxy(1))
    assert found == "the bias has the shape (1,), and the weight 32 output features"


@pytest.mark.parametrize(
    ("capability", "cuda", "recipe", "reason"),
    [
        ((8, 0), "13.0", "current", "has compute capability 8.0, and FP8 needs 8.9"),
        ((8, 9), "13.0", "current", None),
        ((8, 9), "13.0", "block", "the recipe 'block' needs 9.0"),
        ((9, 0), "12.8", "block", "built for CUDA 12.8, and the recipe 'block' needs 12.9"),
        ((9, 0), "13.0", "block", None),
        ((9, 0), "12.1", "delayed", None),
        ((10, 0), "13.0", "current", "has compute capability 10.0, whose matmuls need other layouts"),
    ],
)
def test_devices(monkeypatch: pytest.MonkeyPatch, capability: Any, cuda: str, recipe: str, reason: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    found = conditions.device_refusal.__wrapped__(CUDA, recipe)
    assert (found is None) if reason is None else (found is not None and reason in found)


def test_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(conditions, "device_refusal", lambda device, recipe: None)
    tensors = proxy(32, 32), proxy(32, 32)
    found = refusal(OPTIONS.model_copy(update={"recipe": "delayed"}), *tensors, None)
    assert found == "there are 4 processes, and the recipe 'delayed' is for one; use 'current' or 'block'"
    assert refusal(OPTIONS, *tensors, None) is None


class Model(nn.Module):
    """Two layers and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32, bias=False, dtype=torch.bfloat16) for _ in range(2)])
        self.lm_head = nn.Linear(32, 48, bias=False, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(x)


def taken(program: Any, x: torch.Tensor) -> list[bool]:
    """For each layer, whether its product is in eight bits."""
    program(x)
    names = [line.symbol.name for line in thunder.last_traces(program)[-1].symbols]
    ours = {"thunder_plugin_te.matmuls.run", "thunder_plugin_te.matmuls.forward"}
    return [name in ours for name in names if name in {"torch.nn.functional.linear", *ours}]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [True, True, False]),
        ({"exclude_layers": ()}, [True, True, True]),
        ({"layers": ("layers.1",)}, [False, True, False]),
        ({"layers": ("layers.*",), "exclude_layers": ("layers.0.weight",)}, [False, True, False]),
        ({"layers": ("*x = layer(x)*",)}, [True, True, False]),
        ({"exclude_layers": ("*Model.forward*",)}, [False, False, False]),
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_layers_by_name(calls: list[str], options: dict[str, Any], expected: list[bool], grad: bool) -> None:
    """Equal layers are differentiated once, and the condition still sees each layer's name."""
    program = compiled(Model(), **options)
    with torch.set_grad_enabled(grad):
        assert taken(program, values(16, 32)) == expected


def test_the_reasons_are_told(calls: list[str]) -> None:
    program = compiled(Model())
    program(values(16, 32))
    text = thunder.explain(program).details()
    assert "exclude_layers has '*lm_head*'" in text


def test_patterns_that_match_no_layer_are_in_the_report(calls: list[str]) -> None:
    program = compiled(Model(), layers=("layers.*", "tail"), exclude_layers=("layers.0.weight", "layers.7.*"))
    program(values(16, 32))
    assert [note for note in thunder.explain(program).entries[0].notes if "pattern" in note] == [
        "layers of te: the pattern 'tail' matches no layer of this program",
        "exclude_layers of te: the pattern 'layers.7.*' matches no layer of this program",
    ]
    program = compiled(Model().layers[0])  # the default's '*lm_head*' is not the user's
    program(values(16, 32))
    assert not [note for note in thunder.explain(program).entries[0].notes if "pattern" in note]


def test_on_the_cpu_it_declines() -> None:
    program = thunder.jit(Model(), executors=[TeExecutor(OPTIONS)])
    x = values(16, 32)
    torch.testing.assert_close(program(x), thunder.original(program)(x))
    assert "it runs on CUDA devices, and the tensors are on cpu" in str(thunder.explain(program).decisions)


def test_grouped_products_are_left_alone(calls: list[str]) -> None:
    """What is not a call of linear has no implementation; it runs as it is."""
    x, weights = values(2, 16, 32), values(2, 32, 48, seed=1)
    program = thunder.jit(torch.bmm, executors=[executor()])
    torch.testing.assert_close(program(x, weights), torch.bmm(x, weights))
    assert not calls
    assert {line.executor for line in thunder.explain(program).decisions} == {"reference"}

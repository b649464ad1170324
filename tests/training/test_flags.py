"""What requires grad, in which mode, and cotangents of every kind: between calls, and between input and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.training.steps import assert_same, detached, leaf, mlp, raised


def test_frozen_parameters_and_toggling_them() -> None:
    def scenario(model: Any) -> Any:
        seen = []
        for frozen in ({"0.weight"}, {"2.bias", "0.bias"}, set(), {"0.weight", "0.bias", "2.weight", "2.bias"}, set()):
            for name, parameter in model.named_parameters():
                parameter.requires_grad_(name not in frozen)
                parameter.grad = None
            output = model(torch.randn(5, 4))
            if output.requires_grad:
                output.square().mean().backward()
            seen.append((output.requires_grad, detached([p.grad for p in model.parameters()])))
        return seen

    assert_same(mlp, scenario)


@pytest.mark.parametrize("kind", ["plain", "leaf", "not a leaf", "frozen model"])
def test_inputs_that_require_grad(kind: str) -> None:
    def scenario(model: Any) -> Any:
        model.requires_grad_(kind != "frozen model")
        seen = []
        for _ in range(2):
            source = torch.randn(5, 4, requires_grad=kind != "plain")
            x = source.sin() if kind == "not a leaf" else source
            output = model(x)
            output.square().mean().backward()
            seen.append((source, output.grad_fn is None))
        return seen

    assert_same(mlp, scenario)


def test_modes_and_training_flag_between_calls() -> None:
    """train, eval, no_grad, inference_mode and train again; outputs say whether they require grad."""
    model = lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))  # noqa: E731

    def scenario(model: Any) -> Any:
        x = torch.randn(6, 4)
        seen = []
        for step in ("train", "eval", "no_grad", "inference", "train", "no_grad", "eval", "train"):
            model.train(step == "train")
            with torch.inference_mode(step == "inference"), torch.set_grad_enabled(step in ("train", "eval")):
                output = model(x)
            seen.append((output.requires_grad, output.is_inference(), output.is_leaf, detached(output.detach())))
            if output.requires_grad:
                output.square().mean().backward()
        return [item[:3] for item in seen], [item[3].clone() for item in seen if not item[1]]

    assert_same(model, scenario)


def odd_cotangents() -> dict[str, Callable[[], torch.Tensor]]:
    return {
        "expanded": lambda: torch.randn(()).expand(2, 3, 4, 4),
        "transposed": lambda: torch.randn(4, 4, 3, 2).permute(3, 2, 1, 0),
        "channels_last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        "strided": lambda: torch.randn(2, 3, 4, 8)[..., ::2],
        "zero": lambda: torch.zeros(2, 3, 4, 4),
        "offset": lambda: torch.randn(3, 3, 4, 4)[1:],
        "requires_grad": lambda: leaf(2, 3, 4, 4),
    }


@pytest.mark.parametrize("name", odd_cotangents())
def test_cotangents(name: str) -> None:
    def scenario(model: Any) -> Any:
        seen = []
        for make in (lambda: torch.randn(2, 3, 4, 4), odd_cotangents()[name], lambda: torch.randn(2, 3, 4, 4)):
            x = leaf(2, 3, 4, 4)
            model(x).backward(make())
            seen.append(x)
        return seen

    assert_same(lambda: nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.SiLU()), scenario)


def test_a_wrong_cotangent_is_refused() -> None:
    def scenario(model: Any) -> Any:
        output = model(leaf(5, 4))
        return [
            raised(lambda: output.backward(torch.ones(5, 4))),
            raised(output.backward),
            raised(lambda: output.backward(torch.ones(5, 3, dtype=torch.complex64))),
            raised(lambda: output.detach().backward(torch.ones(5, 3))),
        ]

    assert_same(mlp, scenario)

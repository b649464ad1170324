"""Functions of plugins that get the gradients of inputs of a program, all together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.ir.effects import Effects
from thunder_core.symbols.gradient_hooks import INPUT_GRADIENTS
from thunder_frontend.record import interceptions
from thunder_frontend.record.interception import Interception
from thunder_frontend.record.interceptions import add_interceptions
from thunder_frontend.record.recorder import Recorder

CALLS: list[tuple[tuple[bool, ...], tuple[bool, ...], float]] = []


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(4, 2, bias=False)
        self.other = nn.Linear(4, 2, bias=False)
        self.unused = nn.Parameter(torch.ones(2))

    def prepare(self) -> None:
        """Replaced while the program is recorded."""

    def forward(self, x: torch.Tensor) -> Any:
        self.prepare()
        x = torch.tanh(self.first(x))
        return self.second(x), self.other(x)


def scaled(gradients: Any, reached: tuple[bool, ...], factor: float) -> Any:
    CALLS.append((tuple([gradient is not None for gradient in gradients]), reached, factor))
    return tuple([None if gradient is None else gradient * factor for gradient in gradients])


def _request_gradients(recorder: Recorder, original: Any, model: Model, /) -> None:
    proxies = tuple([recorder.inputs.object_proxy(parameter) for parameter in model.parameters()])
    recorder.trace.write(INPUT_GRADIENTS, (scaled, proxies, 3.0), {}, effects=Effects(external=True))


@pytest.fixture(autouse=True)
def interception() -> Iterator[None]:
    row = Interception(Model, "prepare", _request_gradients, "gradients are scaled")
    add_interceptions([row])
    CALLS.clear()
    yield
    interceptions._added.remove(row)  # those of plugins that were loaded meanwhile stay


def gradients(model: Any, loss: torch.Tensor) -> list[torch.Tensor | None]:
    loss.backward()
    found = [None if parameter.grad is None else parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return found


def compare(found: list[torch.Tensor | None], expected: list[torch.Tensor | None]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other * 3)


def test_gradients_are_replaced_in_each_backward() -> None:
    model, x = Model(), torch.randn(5, 3)
    compiled = thunder.jit(model)
    for _ in range(2):
        expected = gradients(model, sum(part.square().sum() for part in model(x)))
        compare(gradients(model, sum(part.square().sum() for part in compiled(x))), expected)
    _, (given, reached, factor) = CALLS
    assert factor == 3.0
    assert given == reached
    assert dict(zip([name for name, _ in model.named_parameters()], reached, strict=True)) == {
        "unused": False,
        "first.weight": True,
        "first.bias": True,
        "second.weight": True,
        "other.weight": True,
    }


def test_zeros_are_none_and_reached() -> None:
    """A backward from one of two results."""
    model, x = Model(), torch.randn(5, 3)
    compiled = thunder.jit(model)
    expected = gradients(model, model(x)[0].square().sum())
    compare(gradients(model, compiled(x)[0].square().sum()), expected)
    ((given, reached, _),) = CALLS
    assert given == (False, True, True, True, False)
    assert reached == (False, True, True, True, True)


def test_it_does_nothing_without_gradients() -> None:
    model = thunder.jit(Model())
    with torch.no_grad():
        model(torch.randn(5, 3))
    assert CALLS == []


def test_second_derivatives_are_refused() -> None:
    model = thunder.jit(Model())
    loss = sum(part.square().sum() for part in model(torch.randn(5, 3)))
    with pytest.raises(UnsupportedError, match="second derivatives run the program again"):
        torch.autograd.grad(loss, list(model.first.parameters()), create_graph=True)


def test_programs_that_autograd_differentiates_are_refused() -> None:
    model = Model()

    def step(x: torch.Tensor) -> None:
        sum(part.square().sum() for part in model(x)).backward()

    with pytest.raises(UnsupportedError, match=r"scaled replaces gradients while backward runs.*reads or changes"):
        thunder.jit(step)(torch.randn(5, 3))

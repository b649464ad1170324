"""Tensors that a program gives other memory or another size: assignment to ``data``, ``out=``, ``resize_``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from tests.training.steps import CLOSE, detached, loss_of
from thunder_core.errors import UnsupportedError
from thunder_testing.difference import differences
from thunder_testing.snapshot import snapshot

Pair = Callable[[], tuple[torch.Tensor, torch.Tensor]]

PAIRS: dict[str, Pair] = {
    "equal sizes": lambda: (torch.arange(3.0), torch.arange(3.0) + 5),
    "empty": lambda: (torch.arange(3.0), torch.empty(0)),
    "other sizes": lambda: (torch.arange(3.0), torch.arange(5.0)),
}


def data_of_an_input(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.data = y
    return x * 2


def data_of_a_value(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x * 1
    z.data = y * 3
    z.add_(1)
    return z * 2, y


def data_with_a_view(x: torch.Tensor, y: torch.Tensor) -> Any:
    part = x.detach()[0]
    x.data = y
    x.detach().add_(1)
    part.add_(2)
    return x * 2, part * 3


def data_that_is_saved(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x.sin()
    x.data = torch.ones_like(x) * 7
    return z * x


def data_there_and_back(x: torch.Tensor, y: torch.Tensor) -> Any:
    before = x.data
    first = x * 2
    x.data = first.detach() + 1
    second = x * 2
    x.data = before
    return first, second, x * 1


def data_exchanged(x: torch.Tensor, y: torch.Tensor) -> Any:
    x.data, y.data = y.data, x.data
    return x * 1, y * 2


def data_from_a_parameter(x: torch.Tensor, y: torch.Tensor) -> Any:
    layer, z = torch.nn.Linear(1, 1, bias=False).requires_grad_(False), y * 1
    layer.weight.copy_(x.detach()[:1, None])
    layer.to(x.device)  # assigns the parameter itself to its ``data``
    z.data = layer.weight
    return layer(x[:1]), z * 2


def out_of_an_input(x: torch.Tensor, y: torch.Tensor) -> Any:
    result = torch.add(x.detach(), 1, out=y)
    view = y.view(-1)
    view.mul_(3)
    return result, y * 2


def out_of_a_value(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = torch.empty(0)
    torch.add(x.detach(), 1, out=z)
    return z * x


def two_outs(x: torch.Tensor, y: torch.Tensor) -> Any:
    indices = torch.empty(0, dtype=torch.long)
    torch.max(x.detach(), -1, out=(y, indices))
    return y * 2, indices


def set_to_another(x: torch.Tensor, y: torch.Tensor) -> Any:
    with torch.no_grad():
        z = x.detach().clone()
        z.set_(y)  # type: ignore[call-overload]
        z.add_(1)
    return z * 2, y * 3, x * 1


def input_set_to_another(x: torch.Tensor, y: torch.Tensor) -> Any:
    w = y.clone()
    y.set_(w)  # type: ignore[call-overload]
    w.mul_(2)
    return y * 2, x * y.sum()


def resized(x: torch.Tensor, y: torch.Tensor) -> Any:
    y.resize_(4).fill_(2)
    z = x.detach().clone()
    z.resize_(1)
    return y + 1, z


PROGRAMS = [
    data_of_an_input, data_of_a_value, data_with_a_view, data_that_is_saved, data_there_and_back, data_exchanged,
    data_from_a_parameter,
    set_to_another, input_set_to_another, out_of_an_input, out_of_a_value, two_outs, resized,
]  # fmt: skip


def observe(function: Callable[..., Any], make: Pair, requires_grad: bool) -> Any:
    seen: list[Any] = []
    for _ in range(2):
        x, y = make()
        x.requires_grad_(requires_grad)
        try:
            result = function(x, y)
            loss = loss_of(result)
            if loss.requires_grad:
                loss.backward()
        except RuntimeError as error:
            seen.append(type(error).__name__)
            continue
        gradient = None if x.grad is None else x.grad.clone()
        seen.append((detached(result), detached((x, y)), gradient, x.requires_grad, x.is_leaf))
    return snapshot(seen=seen)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized:UserWarning")
@pytest.mark.parametrize("options", [{"executors": []}, {}], ids=["reference", "default"])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_program(program: Callable[..., Any], pair: str, requires_grad: bool, options: dict[str, Any]) -> None:
    compiled = thunder.jit(program, **options)
    expected, found = (observe(function, PAIRS[pair], requires_grad) for function in (program, compiled))
    assert not differences(expected, found, CLOSE)


def test_set_is_refused() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.clone()
        z.set_(y.untyped_storage(), 0, (2,), (1,))
        return z.add_(1)

    with pytest.raises(UnsupportedError, match="another storage"):
        thunder.jit(program)(torch.ones(3), torch.ones(3))

"""Functions of PyTorch that the user has replaced, as PyTorch's own functions call them: ``torch.relu = mine``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.symbols.registry import Registry, load_catalogue

_RELU: Any = torch.relu
_FUNCTIONAL_RELU: Any = functional.relu
_LINEAR: Any = functional.linear


def _equal(function: Callable[..., Any], *args: Any) -> Any:
    compiled = thunder.jit(function)
    for _ in range(2):
        torch.testing.assert_close(compiled(*args), function(*args), rtol=0, atol=0)
    return compiled


@pytest.mark.parametrize("compiled_before", [False, True])
def test_between_compilations_of_different_programs(compiled_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 4)
    state = {"shift": 100}

    def mine(x: Tensor) -> Tensor:
        return _RELU(x) + state["shift"]

    def program(x: Tensor) -> Tensor:
        return functional.relu(x) * 2

    if compiled_before:
        _equal(lambda x: functional.relu(x) + 1, x)
    monkeypatch.setattr(torch, "relu", mine)
    compiled = _equal(program, x)
    _equal(torch.nn.ReLU(), x)
    state["shift"] = 5
    assert torch.equal(compiled(x), program(x))
    monkeypatch.undo()
    assert torch.equal(compiled(x), program(x))
    _equal(lambda x: functional.relu(x) * 3, x)


@pytest.mark.parametrize(
    "replacement",
    [lambda *args, **kwargs: torch.ones(3, 4), torch.sigmoid, mock.Mock(side_effect=lambda *args: args[0] * 2)],
    ids=["function", "a function of PyTorch", "mock"],
)
def test_kinds_of_replacements(replacement: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "relu", replacement)
    _equal(lambda x: functional.relu(x) * 2, torch.randn(3, 4))


def test_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "layer_norm", lambda x, *args: x + 1)
    _equal(torch.nn.LayerNorm(4), torch.randn(3, 4))


def test_called_by_a_function_that_another_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functional, "linear", lambda *args: _LINEAR(*args) * 2)

    def program(x: Tensor) -> Tensor:
        weights = torch.ones(18, 6), torch.ones(6, 6)
        attention = functional.multi_head_attention_forward
        return attention(x, x, x, 6, 2, weights[0], None, None, None, False, 0.0, weights[1], None)[0]  # type: ignore[no-any-return]

    _equal(program, torch.randn(3, 1, 6))


def test_method_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "softmax", lambda x, *args: x.exp())
    _equal(lambda x: functional.softmax(x, -1), torch.randn(3, 4))


@pytest.mark.parametrize(("owner", "name"), [(Tensor, "softmax"), (torch._C._nn, "cross_entropy_loss")])
def test_originals_that_modes_do_not_get_are_refused(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: original(*args, **kwargs) * 2)
    with pytest.raises(UnsupportedError, match=f"replaces torch.*{name}"):
        thunder.jit(lambda x: functional.softmax(x, -1) + functional.cross_entropy(x, x))(torch.randn(3, 4))


def test_the_tables_have_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load_catalogue()
    with monkeypatch.context() as replaced:
        replaced.setattr(torch, "relu", lambda x: x)
        replaced.setattr(Tensor, "relu", lambda x: x)
        replaced.setattr(functional, "linear", lambda *args: args[0])
        replaced.setattr(functional, "relu", lambda x, inplace=False: x)
        catalogue, registry = load_catalogue(), Registry()
        assert registry.symbol_named("torch.relu").target is _RELU
        assert functional.relu not in catalogue.spellings
        assert set(first.spellings) - set(catalogue.spellings) == {_FUNCTIONAL_RELU}

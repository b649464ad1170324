"""Functions of PyTorch that the user has replaced, as PyTorch's own functions call them: ``torch.relu = mine``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import get_overridable_functions

import thunder
from thunder_core.errors import UnsupportedError
from thunder_core.symbols.registry import Registry, _load_catalogue
from thunder_frontend.record.function_bodies import _find_variables
from thunder_testing.forked import LIBRARIES, run_forked

_RELU: Any = torch.relu
_FUNCTIONAL_RELU: Any = functional.relu
_LINEAR: Any = functional.linear
_NORM: Any = Tensor.norm


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


@pytest.mark.parametrize("replacement", ["torch.sigmoid", "Mock(side_effect=lambda *args: args[0] * 2)"])
@pytest.mark.slow
def test_replaced_before_the_first_compilation(replacement: str) -> None:
    """Methods of tensors are not replaced with the function, and the tables of functions have the originals."""
    program = f"""
import torch, thunder
from unittest.mock import Mock
x = torch.tensor([-1.0, 2.0])
original, torch.relu = torch.relu, {replacement}
for program in (lambda x: x.relu(), lambda x: torch.relu(x) + 1, torch.nn.functional.relu):
    assert torch.equal(thunder.jit(program)(x), program(x))
torch.relu = original
for program in (lambda x: torch.relu(x) + 2, lambda x: torch.nn.functional.relu(x) + 2):
    assert torch.equal(thunder.jit(program)(x), program(x))
"""
    done = run_forked(program, preloaded=LIBRARIES)
    assert done.returncode == 0, done.stderr


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


def test_called_by_an_initialization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.init, "calculate_gain", lambda *args: 100.0)

    def program(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return x + torch.nn.init.kaiming_uniform_(torch.empty(3, 4))

    _equal(program, torch.zeros(3, 4))


def test_replaced_while_a_function_is_first_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the original calls is read when it is back."""
    x = torch.randn(3, 4)
    with monkeypatch.context() as replaced:
        replaced.setattr(Tensor, "norm", functools.wraps(_NORM)(lambda *args, **kwargs: torch.ones(3, 1)))
        _equal(lambda x: functional.normalize(x), x)
    monkeypatch.setattr(torch.linalg, "vector_norm", lambda *args, **kwargs: torch.full((3, 1), 2.0))
    _equal(lambda x: functional.normalize(x) + 1, x)


def test_functions_of_pytorch_are_no_replacements() -> None:
    """What PyTorch assigns to its variables: functions, classes, type annotations, cached and partial functions."""
    functions = [func for group in get_overridable_functions().values() for func in group]
    python = [func for func in functions if type(func) is FunctionType]
    assert len(python) > 100
    found = {(v.owner.__name__, v.name) for func in python for v in _find_variables(func) if v.is_replaced()}
    assert not found


def test_method_of_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "softmax", lambda x, *args: x.exp())
    _equal(lambda x: functional.softmax(x, -1), torch.randn(3, 4))


@pytest.mark.parametrize(("owner", "name"), [(Tensor, "softmax"), (torch._C._nn, "cross_entropy_loss")])
def test_originals_that_modes_do_not_get_are_refused(owner: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = getattr(owner, name)
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: original(*args, **kwargs) * 2)
    with pytest.raises(UnsupportedError, match=f"replaces torch.*{name}"):
        thunder.jit(lambda x: functional.softmax(x, -1) + functional.cross_entropy(x, x))(torch.randn(3, 4))


def test_a_call_of_an_original_that_an_object_replaces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    original = Tensor.softmax
    monkeypatch.setattr(Tensor, "softmax", mock.Mock(side_effect=lambda x, *args: x.exp()))
    with pytest.raises(UnsupportedError, match=r"Mock replaces torch.*softmax"):
        thunder.jit(lambda x: original(x, -1))(torch.randn(3, 4))


def test_the_tables_have_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _load_catalogue()
    with monkeypatch.context() as replaced:
        replaced.setattr(torch, "relu", lambda x: x)
        replaced.setattr(Tensor, "relu", lambda x: x)
        replaced.setattr(functional, "linear", lambda *args: args[0])
        replaced.setattr(functional, "relu", lambda x, inplace=False: x)
        catalogue, registry = _load_catalogue(), Registry()
        assert registry.symbol_named("torch.relu").target is _RELU
        assert functional.relu not in catalogue.spellings
        assert set(first.spellings) - set(catalogue.spellings) == {_FUNCTIONAL_RELU}

"""Keys: equal for equal calls, whatever the names; different for everything else."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import pytest
import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.keys import call_key, key_text, name_key, value_key
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_core.passes import operations

CONTEXT = Context(grad_enabled=True, inference=False)
ADD = Symbol("torch.add", torch.add)


def tensor(name: str, storage: int, **more: Any) -> TensorProxy:
    fields = {"shape": (2,), "stride": (1,), "dtype": torch.float32, "requires_grad": False} | more
    return TensorProxy(name, device=torch.device("cpu"), storage=storage, **fields)


def add(one: Any, other: Any, name: str = "r", storage: int = 9, symbol: Symbol = ADD) -> BoundSymbol:
    return BoundSymbol(symbol, (one, other), {}, tensor(name, storage))


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, 1.0), (1, True), (0, False), (0.0, -0.0), ((1,), [1]), (1.0, complex(1)), (torch.float16, torch.bfloat16)],
)
def test_literals_of_another_type_differ(one: Any, other: Any) -> None:
    assert value_key(one, name_key) != value_key(other, name_key)


@pytest.mark.parametrize("value", [float("nan"), -0.0, (1, [2.0, None]), slice(1, None), {"a": 1}, Ellipsis, 1j])
def test_equal_literals_agree(value: Any) -> None:
    assert value_key(value, name_key) == value_key(value, name_key)
    assert hash(value_key(value, name_key)) == hash(value_key(value, name_key))


def test_names_and_numbers_of_storages_do_not_count() -> None:
    a, b, x, y = tensor("a", 1), tensor("b", 2), tensor("x", 7), tensor("y", 5)
    assert call_key(add(a, b), CONTEXT) == call_key(add(x, y, "z", 3), CONTEXT)


@pytest.mark.parametrize(
    "change",
    [
        {"shape": (3,)},
        {"stride": (2,)},
        {"offset": 1},
        {"dtype": torch.float64},
        {"requires_grad": True},
        {"layout": torch.sparse_coo},
        {"storage": 2},
    ],
    ids=str,
)
def test_all_metadata_of_a_call_counts(change: dict[str, Any]) -> None:
    a, b = tensor("a", 1), tensor("b", 2)
    assert call_key(add(a, b), CONTEXT) != call_key(add(replace(a, **change), b), CONTEXT)


def test_one_tensor_twice_is_not_two_tensors_of_one_storage() -> None:
    a, other = tensor("a", 1), tensor("other", 1)
    assert call_key(add(a, a), CONTEXT) != call_key(add(a, other), CONTEXT)


def test_settings_and_modes_count() -> None:
    line = add(tensor("a", 1), 1)
    before = call_key(line, CONTEXT)
    assert call_key(line, replace(CONTEXT, grad_enabled=False)) != before
    torch.set_default_dtype(torch.float64)
    try:
        assert call_key(line, CONTEXT) != before
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert call_key(line, CONTEXT) != before
    assert call_key(line, CONTEXT) == before


def test_what_equals_no_other_call_has_no_key() -> None:
    a = tensor("a", 1)
    local = Symbol("mine", lambda x, y: x, tags=frozenset({Tag.LOCAL}))
    inner = Trace("inner", (a,), (), a, Stage.FUNCTIONAL, "test", CONTEXT)
    for line in (add(a, 1, symbol=local), add(a, {1, 2}), add(a, inner)):
        assert call_key(line, CONTEXT) is None


def test_functions_have_names_if_their_code_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = torch.nn.functional.gelu, torch.native_batch_norm, operations.functional_call, torch.ops.aten.mm.default
    texts = [key_text((function,)) for function in given]
    assert None not in texts
    assert len({*texts}) == len(given)
    original = torch.nn.functional.relu
    monkeypatch.setattr(torch.nn.functional, "relu", functools.wraps(original)(lambda x: x.abs()))
    others = torch.nn.functional.relu, tensor, len, torch.nn.ReLU(), object()
    assert [key_text((function,)) for function in others] == [None] * len(others)

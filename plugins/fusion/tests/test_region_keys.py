"""Keys of programs and of lines: equal for equal ones, whatever the names; different for everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.context import Context
from thunder_core.ir.proxy import TensorProxy
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage, Trace
from thunder_fusion.keys import ops_key, trace_key

CONTEXT = Context(grad_enabled=True, inference=False)
ADD = Symbol("torch.add", torch.add)


def tensor(name: str, storage: int) -> TensorProxy:
    return TensorProxy(name, (2,), (1,), torch.float32, torch.device("cpu"), False, storage)


def add(one: Any, other: Any, name: str = "r", storage: int = 9, symbol: Symbol = ADD) -> BoundSymbol:
    return BoundSymbol(symbol, (one, other), {}, tensor(name, storage))


def test_names_and_numbers_of_storages_do_not_count() -> None:
    a, b, x, y = tensor("a", 1), tensor("b", 2), tensor("x", 7), tensor("y", 5)
    assert ops_key([add(a, b)]) == ops_key([add(x, y, "z", 3)])


def test_one_tensor_twice_is_not_two_tensors_of_one_storage() -> None:
    a, other = tensor("a", 1), tensor("other", 1)
    assert ops_key([add(a, a)]) != ops_key([add(a, other)])


def test_how_values_flow_counts() -> None:
    a, b, r, s = tensor("a", 1), tensor("b", 2), tensor("r", 9), tensor("s", 8)
    one = Trace("f", (a, b), (add(a, b), add(r, a, "s", 8)), s, Stage.FUNCTIONAL, "test", CONTEXT)
    other = replace(one, symbols=(add(a, b), add(r, b, "s", 8)))
    assert trace_key(one) != trace_key(other)
    assert trace_key(one) != trace_key(replace(one, output=r))
    assert trace_key(one) == trace_key(replace(one, name="g"))


def test_lines_that_equal_no_other_have_no_key() -> None:
    a = tensor("a", 1)
    local = Symbol("mine", lambda x, y: x, tags=frozenset({Tag.LOCAL}))
    inner = Trace("inner", (a,), (), a, Stage.FUNCTIONAL, "test", CONTEXT)
    for line in (add(a, 1, symbol=local), add(a, {1, 2}), add(a, inner)):
        assert ops_key([line]) is None

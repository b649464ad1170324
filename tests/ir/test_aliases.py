from __future__ import annotations

from typing import Any

import torch

from tests.passes.programs import acquire_program
from thunder_core.ir.aliases import Aliases
from thunder_core.ir.proxy import TensorProxy


def program(x: torch.Tensor, y: torch.Tensor) -> Any:
    made = x.exp()
    row = made[0]
    y.add_(1)
    other = (row * 2).sum()
    return row, other + 1


def test_answers() -> None:
    trace = acquire_program(program, torch.ones(2, 3), torch.ones(3)).trace
    aliases = Aliases.of(trace)
    x, y = (proxy.storage for proxy in trace.inputs if isinstance(proxy, TensorProxy))
    made, row, _, product, total, result = (line.output for line in trace.symbols)
    assert Aliases.of(trace) is aliases
    assert aliases.written == aliases.pinned == {y}
    assert aliases.written_inputs == (1,)
    assert aliases.given == {x, y}
    assert aliases.escaping == {made.storage, result.storage}
    assert aliases.visible == {made.name, row.name, result.name}
    assert aliases.fixed() == {y, made.storage, result.storage}
    assert aliases.fixed(frozenset({product.name})) == aliases.fixed() | {product.storage}
    assert aliases.definitions(made.storage) == [(0, made), (1, row)]
    assert list(aliases.readers(made.storage)) == [1, 3]
    assert aliases.is_last_read_at(product.storage, 4)
    assert not aliases.is_last_read_at(product.storage, 3)
    assert not aliases.is_last_read_at(made.storage, 5)  # it is returned
    assert aliases.is_created(total.storage)
    assert not aliases.is_created(x)

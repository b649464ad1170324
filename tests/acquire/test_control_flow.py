"""Operators of PyTorch that run programs several times, in compiled programs: ``map``, ``scan``, ``while_loop``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.map import map as mapped
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.utils._pytree import tree_flatten

import thunder

torch.manual_seed(0)
layer = nn.Linear(3, 3)

# Eager PyTorch runs these operators by torch.compile, which takes some of what they allow: loops say what to expect.


def map_of_a_module(x: torch.Tensor, *, own: bool) -> Any:
    if own:
        return torch.stack([torch.relu(layer(row)) for row in x])
    return mapped(lambda row: torch.relu(layer(row)), x)


def map_of_trees(x: torch.Tensor, *, own: bool) -> Any:
    if own:
        return {"a": torch.stack([row + x[0] for row in x]), "b": [torch.stack([row * 6 for row in x])]}
    return mapped(lambda row, s, c: {"a": row["x"] + s, "b": [row["y"] * c]}, {"x": x, "y": x * 2}, x[0], 3)


def scan_of_tensors(x: torch.Tensor, *, own: bool) -> Any:
    if own:
        carry, ys = x[0] * 0, []
        for row in x:
            carry, y = carry + row, carry * row
            ys.append(y)
        return carry, torch.stack(ys)
    return scan(lambda carry, row: (carry + row, carry * row), x[0] * 0, x)


def scan_of_trees_in_reverse(x: torch.Tensor, *, own: bool) -> Any:
    def combine(carry: Any, rows: Any) -> Any:
        return {"s": carry["s"] + rows[0], "n": carry["n"] + 1}, [rows[1] * carry["n"], torch.tanh(carry["s"])]

    init = {"s": x[0] * 0, "n": torch.zeros(())}
    if own:
        carry, ys = init, []
        for row in x.flip(0):
            carry, y = combine(carry, [row, row * 2])
            ys.append(y)
        return carry, [torch.stack(column).flip(0) for column in zip(*ys, strict=True)]
    return scan(combine, init, [x, x * 2], reverse=True)


def scan_of_columns(x: torch.Tensor, *, own: bool) -> Any:
    factor = layer(x).mean()
    if own:
        carry, ys = x[:, 0] * 0, []
        for column in x.t():
            carry, y = carry + column * factor, carry * column
            ys.append(y)
        return carry, torch.stack(ys, 1)
    carry, ys = scan(lambda carry, column: (carry + column * factor, carry * column), x[:, 0] * 0, x, dim=1)
    return carry, ys if ys.shape[0] == len(x) else ys.t()  # PyTorch 2.11 stacks along the first dimension


def loop_of_tensors(x: torch.Tensor, *, own: bool) -> Any:
    n, y = torch.zeros((), dtype=torch.int64), x.abs() + 0.1
    if own:
        while y.sum() < 40:
            n, y = n + 1, y * 1.5
        return n, y
    return while_loop(lambda n, y: y.sum() < 40, lambda n, y: (n + 1, y * 1.5), (n, y))


def loop_of_numbers(x: torch.Tensor, *, own: bool) -> Any:
    if own:
        return 4, torch.tanh(layer(torch.tanh(layer(torch.tanh(layer(torch.tanh(layer(x))))))))
    return while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, torch.tanh(layer(y))), (0, x))


def loop_without_turns(x: torch.Tensor, *, own: bool) -> Any:
    return (x.clone(),) if own else while_loop(lambda y: y.sum() > 1e9, lambda y: (y + 1,), (x,))


def branch_with_names(x: torch.Tensor, *, own: bool) -> Any:
    return torch.ops.higher_order.cond(x.sum() > 0, lambda x: (x * 2,), lambda x: (x - 1,), (x,))


def associative(x: torch.Tensor, *, own: bool) -> Any:
    return x.cumsum(0) if own else associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


PROGRAMS: list[Callable[..., Any]] = [
    *(map_of_a_module, map_of_trees, scan_of_tensors, scan_of_trees_in_reverse, scan_of_columns),
    *(loop_of_tensors, loop_of_numbers, loop_without_turns, associative),
]


def outcome(program: Callable[[torch.Tensor], Any], x: torch.Tensor, *, training: bool) -> Any:
    x = x.clone().requires_grad_(training)
    leaves, structure = tree_flatten(program(x))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    gradients: Any = ()
    if training:
        wanted = [x, *layer.parameters()]
        losses = [leaf.sum() for leaf in tensors if leaf.requires_grad]
        gradients = torch.autograd.grad(losses, wanted, allow_unused=True)
    return structure, [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], gradients


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.battery
def test_operator_gives_what_the_loop_gives(program: Callable[..., Any], training: bool) -> None:
    compiled = thunder.jit(lambda x: program(x, own=False))
    for rows, sign in ((4, 1), (4, -1), (4, 1), (5, 1)):
        x = torch.randn(rows, 3) * sign
        found = outcome(compiled, x, training=training)
        expected = outcome(lambda x: program(x, own=True), x, training=training)
        assert str(found[0]) == str(expected[0])
        torch.testing.assert_close(found[1:], expected[1:])


def test_branch_operator() -> None:
    compiled = thunder.jit(lambda x: branch_with_names(x, own=False))
    for sign in (1, -1):
        x = torch.rand(3) * sign
        torch.testing.assert_close(compiled(x), (x * 2,) if sign > 0 else (x - 1,))


def test_python_state_in_the_mapped_function() -> None:
    def program(x: torch.Tensor) -> Any:
        seen = []

        def function(row: torch.Tensor) -> torch.Tensor:
            seen.append(row.sum())
            return row + len(seen)

        return mapped(function, x), len(seen)

    y, count = thunder.jit(program)(torch.zeros(3, 2))
    torch.testing.assert_close(y, torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]))
    assert count == 3

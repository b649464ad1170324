from __future__ import annotations

import torch

from tests.passes.programs import acquire_program
from thunder_core.ir.trace import Trace
from thunder_core.passes.dead_code import without_dead_code


def names(trace: Trace) -> list[str]:
    return [bound.symbol.name for bound in trace.symbols]


def test_unused_ops_go():
    def program(x):
        y = x.exp()
        y.sin()
        (x * 2).cos()
        return y + 1

    assert names(without_dead_code(acquire_program(program, torch.ones(3)).trace)) == ["torch.exp", "torch.add"]


def test_random_and_external_ops_stay():
    def program(x):
        torch.rand(3)
        y = x * 2
        y.requires_grad_()
        return x + 1

    kept = names(without_dead_code(acquire_program(program, torch.ones(3)).trace))
    assert kept[0] == "torch.rand"
    assert "torch.mul" in kept
    assert len(kept) == 4


def test_writes_to_memory_that_is_read_stay():
    def program(x):
        y = x * 2
        y[0].add_(1)
        y.view(-1).mul_(3)
        return y

    trace = acquire_program(program, torch.ones(3, 2)).trace
    assert len(without_dead_code(trace).symbols) == len(trace.symbols)


def test_writes_to_dead_memory_go():
    def program(x):
        y = x * 2
        y[0].add_(1)
        return x + 1

    assert names(without_dead_code(acquire_program(program, torch.ones(3, 2)).trace)) == ["torch.add"]


def test_writes_to_inputs_stay():
    def program(x):
        x[0].add_(1)
        return torch.ones(2)

    trace = acquire_program(program, torch.ones(3, 2)).trace
    assert len(without_dead_code(trace).symbols) == 3


def test_nothing_dead_returns_the_same_trace():
    trace = acquire_program(lambda x: x + 1, torch.ones(3)).trace
    assert without_dead_code(trace) is trace

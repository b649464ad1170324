"""Executors that rewrite patterns of several lines, and that say which of their implementations runs a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

import thunder
from thunder.report.decisions import decision_table
from thunder_core.executors import Claimed, Declined, Executor
from thunder_core.executors.executor import executor_symbol
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.symbols.registry import registry


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


class Sines(Executor):
    """Runs ``sin``; of ``sin(-(-x))``, that of ``x``."""

    name = "sines"
    rewrites = True

    def claim(self, bound: BoundSymbol) -> Any:
        if bound.symbol is not registry.symbol_of(torch.sin):
            return Declined(self.name, "it does not claim this operation", implements=False)
        symbol = executor_symbol(sine, self.name, bound.symbol.tags, bound.symbol)
        return Claimed(self.name, symbol, variant="plain", passed_over=(("fast", "it is too far away"),))

    def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
        value = bound.args[0]
        for _ in range(2):
            line = producers.get(value.name)
            if line is None or line.symbol is not registry.symbol_of(torch.neg):
                return None
            (value,) = line.args
        return replace(bound, args=(value,))


def twice_negated(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(torch.neg(torch.neg(x)))


def names(compiled: Any) -> list[str]:
    return [line.symbol.name.rpartition(".")[2] for line in thunder.last_traces(compiled)[-1].symbols]


@pytest.mark.parametrize("grad", [False, True])
def test_lines_in_between_are_dropped(grad: bool) -> None:
    x = torch.randn(3, requires_grad=grad)
    compiled = thunder.jit(twice_negated, executors=[Sines()])
    y = compiled(x)
    torch.testing.assert_close(y, twice_negated(x))
    assert names(compiled) == ["sine"] if not grad else "neg" not in names(compiled)
    if grad:
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], torch.cos(x))


def test_lines_that_others_read_stay() -> None:
    def program(x: torch.Tensor) -> Any:
        negated = torch.neg(x)
        return torch.sin(torch.neg(negated)), negated

    x = torch.randn(3)
    compiled = thunder.jit(program, executors=[Sines()])
    torch.testing.assert_close(compiled(x), program(x))
    assert sorted(names(compiled)) == ["neg", "sine"]


def test_only_the_executor_that_claims_the_line_rewrites_it() -> None:
    class First(Sines):
        name = "first"
        rewrites = False

        def rewritten(self, bound: BoundSymbol, producers: Mapping[str, BoundSymbol]) -> BoundSymbol | None:
            return None

    x = torch.randn(3)
    compiled = thunder.jit(twice_negated, executors=[First(), Sines()])
    torch.testing.assert_close(compiled(x), twice_negated(x))
    assert names(compiled) == ["neg", "neg", "sine"]


def test_variants_are_told() -> None:
    compiled = thunder.jit(torch.sin, executors=[Sines()])
    compiled(torch.randn(3))
    (line,) = thunder.explain(compiled).decisions
    assert (line.executor, line.variant) == ("sines", "plain")
    assert line.declined == (("sines.fast", "it is too far away"),)
    table = decision_table([line])
    assert "sines.plain" in table[0]
    assert table[1].strip() == "not sines.fast: it is too far away"

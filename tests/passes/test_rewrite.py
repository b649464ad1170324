from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from tests.passes.programs import acquire_program
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_core.passes.rewrite import Match, Rule, rewrite


def program(x: torch.Tensor) -> Any:
    return x.exp().exp().exp() + 1


def names(trace: Trace) -> list[str]:
    return [line.symbol.name for line in trace.symbols]


def pairs(trace: Trace, visited: list[str]) -> Rule[Match]:
    """Replaces two exponentials by one, and appends the name of the first one's result to ``visited``."""

    def pattern(line: BoundSymbol) -> Iterator[Match]:
        for user in trace.users(line.output.name):
            if line.symbol.name == user.symbol.name == "torch.exp":
                yield Match((line, user))

    def replacement(match: Match) -> tuple[BoundSymbol, ...]:
        first, last = match.ops
        visited.append(first.output.name)
        return (replace(first, output=last.output),)

    return Rule(pattern, replacement)


def test_matches_that_share_a_line_are_replaced_once() -> None:
    trace = acquire_program(program, torch.ones(3)).trace
    for backwards, first in ((False, 0), (True, 1)):
        visited: list[str] = []
        result = rewrite(trace, [pairs(trace, visited)], "test", backwards=backwards)
        assert names(result) == ["torch.exp", "torch.exp", "torch.add"]
        assert visited == [trace.symbols[first].output.name]
        assert result.provenance == "test"


def test_the_first_rule_with_a_replacement_is_taken() -> None:
    trace = acquire_program(program, torch.ones(3)).trace

    def every(line: BoundSymbol) -> Iterator[Match]:
        yield Match((line,))

    refusing = Rule(every, lambda match: None)
    doubling = Rule(every, lambda match: (*match.ops, *match.ops) if match.ops[0] is trace.symbols[0] else None)
    assert names(rewrite(trace, [refusing, doubling], "test")) == ["torch.exp", *names(trace)]
    assert rewrite(trace, [refusing], "test") is trace

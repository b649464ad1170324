from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from tests.passes.programs import acquire_program, functionalize
from thunder_core.executors import Claimed, Decision, Declined, Executor
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.executors.reference import REFERENCE
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Symbol, Tag
from thunder_core.ir.trace import Stage
from thunder_core.passes.assign_executors import AssignExecutors
from thunder_core.passes.base import PassContext


def slow_exp(x: torch.Tensor) -> torch.Tensor:
    return x.double().exp().float()


@dataclass(frozen=True)
class OnlyExp(Executor):
    name: str = "only-exp"

    def claim(self, bound: BoundSymbol) -> Decision:
        if bound.symbol.target is torch.exp:
            return Claimed(self.name, Symbol("slow_exp", slow_exp, tags=frozenset({Tag.OPAQUE})))
        return Declined(self.name, "only exp is implemented")


def test_reference_runs_everything_as_it_is():
    program = acquire_program(lambda x: x.exp() + 1, torch.ones(3))
    trace = functionalize(program.trace).computation
    result = AssignExecutors().run(trace, PassContext())
    assert result.trace.stage is Stage.EXECUTABLE
    assert result.trace.symbols == trace.symbols
    assert [assignment.decisions for assignment in result.assignments] == [(Claimed("reference"),)] * 2


def test_first_claim_wins_and_all_answers_are_kept():
    program = acquire_program(lambda x: x.exp() + 1, torch.ones(3))
    result = AssignExecutors().run(functionalize(program.trace).computation, PassContext(executors=(OnlyExp(),)))
    assert [bound.symbol.name for bound in result.trace.symbols] == ["slow_exp", "torch.add"]
    assert result.assignments[0].executor == "only-exp"
    assert result.assignments[1].decisions == (Declined("only-exp", "only exp is implemented"), Claimed("reference"))
    (value,) = compile_trace(result.trace)(*program.inputs)
    torch.testing.assert_close(value, torch.ones(3).exp() + 1)


def test_claims_are_pure():
    bound = acquire_program(lambda x: x.exp(), torch.ones(3)).trace.symbols[0]
    assert REFERENCE.claim(bound) == REFERENCE.claim(bound)


@dataclass(frozen=True)
class Parts(Executor):
    name: str = "parts"
    takes_parts: bool = True

    def claim(self, bound: BoundSymbol) -> Decision:
        if bound.symbol.target is torch.ops.aten._softmax.default:
            return Claimed(self.name)
        return Declined(self.name, "only parts are taken")


@dataclass(frozen=True)
class Everything(Executor):
    name: str = "everything"

    def claim(self, bound: BoundSymbol) -> Decision:
        return Claimed(self.name)


def test_patterns_match_the_function_of_a_functionalized_write() -> None:
    norm = torch.nn.BatchNorm1d(4)
    trace = functionalize(acquire_program(norm, torch.randn(3, 4)).trace).computation
    (op,) = [op for op in trace.symbols if op.symbol.name.endswith("functional_call")]
    excluding = ConfiguredExecutor(Everything(), exclude=("*batch_norm*",))
    assert excluding.claim(op) == Declined("everything", "the configuration excludes '*batch_norm*'")
    assert excluding.unmatched(trace.symbols) == []
    including = ConfiguredExecutor(Everything(), include=("torch.nn.functional.batch_norm",))
    assert [including.claim(each) == Claimed("everything") for each in trace.symbols] == [
        each is op for each in trace.symbols
    ]


@pytest.mark.parametrize(
    ("patterns", "runs"),
    [
        ({}, ["parts"]),
        ({"exclude": ("torch.Tensor.softmax",)}, []),
        ({"exclude": ("torch.exp",)}, ["parts"]),
        ({"include": ("torch.softmax",)}, ["parts"]),
        ({"include": ("torch.exp",)}, []),
    ],
    ids=str,
)
def test_patterns_for_an_operation_are_about_its_parts(patterns: dict[str, tuple[str, ...]], runs: list[str]) -> None:
    program = acquire_program(lambda x: x.softmax(0), torch.ones(3))
    executor = ConfiguredExecutor(Parts(), **patterns)
    computation = functionalize(program.trace).computation
    (whole,) = AssignExecutors().run(computation, PassContext(executors=(executor,))).assignments
    assert [part.executor for part in whole.parts] == runs

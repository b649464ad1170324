from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch

from tests.passes.programs import acquire_program
from thunder_core.errors import VerificationError
from thunder_core.ir.trace import Stage, Trace
from thunder_core.ir.verifier import verification_requested
from thunder_core.passes.assign_executors import AssignExecutors
from thunder_core.passes.base import Pass, PassContext
from thunder_core.passes.dead_code import DeadCode
from thunder_core.passes.functionalize import Functionalize
from thunder_core.passes.pass_manager import PassManager


@dataclass(frozen=True)
class Break(Pass[Trace]):
    """Removes the first line."""

    name: ClassVar[str] = "Break"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return trace.with_symbols(trace.symbols[1:], self.name)


@dataclass(frozen=True)
class Fail(Pass[Trace]):
    """Raises."""

    name: ClassVar[str] = "Fail"

    def run(self, trace: Trace, context: PassContext) -> Trace:
        raise KeyError("no such line")


@dataclass(frozen=True)
class WrongStage(Pass[Trace]):
    """Says one stage and makes another."""

    name: ClassVar[str] = "WrongStage"
    produces: ClassVar[Stage | None] = Stage.FUNCTIONAL

    def run(self, trace: Trace, context: PassContext) -> Trace:
        return replace(trace, stage=Stage.EXECUTABLE)


@pytest.fixture
def trace() -> Trace:
    return acquire_program(lambda x: x.exp() + 1, torch.ones(3)).trace


def test_runs_are_recorded(trace):
    manager = PassManager(verify=True)
    functional = manager.run(Functionalize(), trace)
    manager.run(DeadCode(), functional.computation)
    manager.run(AssignExecutors(), functional.computation)
    assert [record.name for record in manager.records] == ["Functionalize", "DeadCode", "AssignExecutors"]
    assert all(record.seconds >= 0 and record.traces for record in manager.records)
    assert manager.records[-1].traces[0].stage is Stage.EXECUTABLE


def test_broken_trace_is_found(trace):
    with pytest.raises(VerificationError, match="not defined"):
        PassManager(verify=True).run(Break(), trace)
    PassManager(verify=False).run(Break(), trace)


def test_the_pass_that_broke_a_trace_is_named(trace):
    with pytest.raises(VerificationError, match=r"by the pass 'Break', at symbols\[0\]: it uses 't0'") as caught:
        PassManager(verify=True).run(Break(), trace)
    assert "please report it" in str(caught.value)


def test_when_a_later_pass_fails_the_one_that_broke_the_trace_is_named(trace):
    manager = PassManager(verify=False)
    manager.run(DeadCode(), trace)
    broken = manager.run(Break(), trace)
    with pytest.raises(VerificationError, match="produced by the pass 'Break'"):
        manager.run(Fail(), broken)


def test_a_pass_that_fails_by_itself_is_not_excused(trace):
    manager = PassManager(verify=False)
    manager.run(DeadCode(), trace)
    with pytest.raises(KeyError, match="no such line"):
        manager.run(Fail(), trace)


def test_wrong_stage_is_found(trace):
    with pytest.raises(VerificationError, match="'WrongStage' returned a trace of stage executable, not functional"):
        PassManager(verify=True).run(WrongStage(), trace)


def test_pass_refuses_another_stage(trace):
    manager = PassManager(verify=False)
    functional = manager.run(Functionalize(), trace)
    with pytest.raises(VerificationError, match="takes a trace of stage acquired"):
        manager.run(Functionalize(), functional.computation)


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("0", False), ("", False)])
def test_environment_asks_for_verification(monkeypatch, value, wanted):
    monkeypatch.setenv("THUNDER_VERIFY", value)
    assert verification_requested() is wanted
    assert PassManager().verify is wanted

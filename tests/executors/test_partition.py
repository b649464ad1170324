"""Executors that take several lines together: the hook `Executor.partition`, without a library that finds regions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import thunder
from thunder_core.executors import (
    Claim,
    Claimed,
    CompiledRegions,
    Decision,
    Declined,
    Executor,
    OperatorExecutor,
    RegionCounts,
)
from thunder_core.executors.configured import ConfiguredExecutor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_core.ir.trace import Trace

Partition = Callable[[Sequence[int]], Any]


def neighbours(offers: Sequence[int]) -> list[list[int]]:
    """Lines that follow each other directly."""
    groups: list[list[int]] = []
    for index in offers:
        if groups and groups[-1][-1] == index - 1:
            groups[-1].append(index)
        else:
            groups.append([index])
    return groups


@dataclass(frozen=True, eq=False)
class Grouping(Executor):
    """Takes elementwise lines, in groups that a function of their positions makes, and runs them one by one.

    Attributes:
        group: what `partition` does with the positions.
        seen: the programs of the regions, by call of `compile_regions`.
    """

    name: str = "grouping"
    group: Partition = neighbours
    fuses: bool = True
    seen: list[list[Trace]] = field(default_factory=list)

    def claim(self, bound: BoundSymbol) -> Decision:
        if Tag.ELEMENTWISE in bound.symbol.tags:
            return Claimed(self.name)
        return Declined(self.name, "it is not elementwise")

    def partition(self, trace: Trace, offers: Sequence[int]) -> Sequence[Sequence[int]]:
        return self.group(offers)

    def compile_regions(self, regions: Sequence[Trace]) -> CompiledRegions:
        self.seen.append([*regions])
        counts = RegionCounts(regions=len(regions), compiled=len(regions))
        return CompiledRegions([compile_trace(region) for region in regions], counts)


def program(x: torch.Tensor) -> torch.Tensor:
    return ((x.exp() * 2) @ x).sin() + 1


def executors_of(compiled: Any) -> list[str | None]:
    return [line.symbol.executor for line in thunder.last_traces(compiled)[-1].symbols]


def test_regions_run_as_one_call() -> None:
    executor, x = Grouping(), torch.randn(3, 3)
    compiled = thunder.jit(program, executors=[executor])
    torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert executors_of(compiled) == ["grouping", None, "grouping"]
    report = thunder.explain(compiled).entries[0].regions
    assert report is not None
    assert (report.regions, report.compiled) == (2, 2)


def test_regions_of_forward_and_backward_are_compiled_together() -> None:
    executor, x = Grouping(), torch.randn(3, 3, requires_grad=True)
    actual = thunder.jit(program, executors=[executor])(x)
    torch.testing.assert_close(
        torch.autograd.grad(actual.sum(), x), torch.autograd.grad(program(x).sum(), x), rtol=0, atol=0
    )
    (together,) = executor.seen
    assert len(together) > 2


def test_ops_in_no_region_run_by_themselves() -> None:
    executor, x = Grouping(group=lambda offers: neighbours(offers)[:1]), torch.randn(3, 3)
    compiled = thunder.jit(program, executors=[executor])
    torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert executors_of(compiled) == ["grouping", None, None, None]
    assert [line.executor for line in thunder.explain(compiled).entries[0].decisions][-1] == "grouping"


def test_each_executor_sees_regions_of_those_before_as_single_ops() -> None:
    seen: list[int] = []

    class First(Grouping):
        def claim(self, bound: BoundSymbol) -> Decision:
            wanted = bound.symbol.name in ("torch.exp", "torch.mul")
            return Claimed(self.name) if wanted else Declined(self.name, "it takes other operations")

    class Second(Grouping):
        def partition(self, trace: Trace, offers: Sequence[int]) -> Sequence[Sequence[int]]:
            seen.append(len(trace.symbols))
            return super().partition(trace, offers)

    x = torch.randn(3, 3)
    compiled = thunder.jit(program, executors=[First("first"), Second("second")])
    torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert executors_of(compiled) == ["first", None, "second"]
    assert seen == [4]  # the region, the matrix product, and two lines


def test_executors_as_configured_take_regions_of_what_is_included() -> None:
    configured = ConfiguredExecutor(Grouping(), exclude=("torch.mul",))
    assert configured.fuses
    compiled = thunder.jit(program, executors=[configured])
    x = torch.randn(3, 3)
    torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert executors_of(compiled) == ["grouping", None, None, "grouping"]


def _raise(offers: Sequence[int]) -> Any:
    raise ZeroDivisionError("oops")


WRONG: dict[str, tuple[Partition, str]] = {
    "raises": (_raise, "its partition failed with ZeroDivisionError: oops"),
    "nothing": (lambda offers: None, "its partition failed with TypeError"),
    "not offered": (lambda offers: [[offers[1] + 1]], "ops that were not offered, or are in another region"),
    "in two regions": (lambda offers: [[offers[0]], [offers[0]]], "ops that were not offered, or are in another"),
    "not sorted": (lambda offers: [[*offers][::-1]], "not a sorted sequence of positions"),
    "empty": (lambda offers: [[]], "not a sorted sequence of positions"),
    "around a line": (lambda offers: [[*offers]], "regions that wait for each other"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_regions_are_told_and_their_ops_offered_to_others(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group, problem = WRONG[name]
    x = torch.randn(3, 3)
    compiled = thunder.jit(program, executors=[Grouping(group=group), Grouping("second")])
    with pytest.warns(thunder.ExecutorWarning, match=problem):
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert executors_of(compiled) == ["second", None, "second"]
    reasons = [reason for line in thunder.explain(compiled).decisions for _, reason in line.declined]
    assert any(problem in reason for reason in reasons)
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(thunder.ExecutorError, match=problem):
        thunder.jit(program, executors=[Grouping(group=group)])(x)


def test_ops_under_different_modes_share_no_region() -> None:
    def modes(x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        with torch.no_grad():
            return y.sin()

    x = torch.randn(3, 3)
    compiled = thunder.jit(modes, executors=[Grouping()])
    with pytest.warns(thunder.ExecutorWarning, match="ops with different contexts"):
        torch.testing.assert_close(compiled(x), modes(x), rtol=0, atol=0)


COMPILING: dict[str, tuple[Any, str]] = {
    "raises": (lambda self, regions: 1 // 0, "its compile_regions failed with ZeroDivisionError"),
    "too few": (lambda self, regions: CompiledRegions(()), "its compile_regions did not return a function"),
    "no function": (
        lambda self, regions: CompiledRegions([1] * len(regions)),
        "its compile_regions did not return a function",
    ),
    "no counts": (
        lambda self, regions: CompiledRegions([compile_trace(region) for region in regions], None),
        "its compile_regions returned counts that are NoneType, not RegionCounts",
    ),
    "nothing": (lambda self, regions: None, "its compile_regions returned NoneType, not CompiledRegions"),
}


@pytest.mark.parametrize("name", COMPILING)
def test_executors_that_cannot_compile_decline(name: str) -> None:
    method, problem = COMPILING[name]
    executor = type("Broken", (Grouping,), {"compile_regions": method})()
    compiled, x = thunder.jit(program, executors=[executor]), torch.randn(3, 3)
    with pytest.warns(thunder.ExecutorWarning, match=problem):
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    assert executors_of(compiled) == [None] * 5


def test_refused_regions_and_rewrites_in_a_circle_end_with_an_error() -> None:
    refusing = type(
        "Refusing", (Grouping,), {"compile_regions": lambda self, regions: CompiledRegions(["no"] * len(regions))}
    )
    rewriting = OperatorExecutor("rewriting", (Claim(torch.sin, rewrite=lambda input: torch.sin(input + 0)),))
    compiled = thunder.jit(lambda x: x.sin(), executors=[refusing(), rewriting])
    with pytest.raises(thunder.ExecutorError, match=r"rewriting rewrites torch.sin into itself"):
        compiled(torch.randn(3))

"""Executors without a table: fusion executors, and others that answer by themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import defective as d
import pytest
import torch
import torch.nn.functional as F

from thunder_core.executors import Claimed, Decision, Declined, DerivativePair, Executor
from thunder_core.ir.bound_symbol import BoundSymbol
from thunder_core.ir.trace import Trace
from thunder_testing import ConformanceFailure
from thunder_testing.conformance import suite
from thunder_testing.conformance.failure import NotApplicable
from thunder_testing.conformance.suite import executor_cases
from thunder_testing.pointwise import Pointwise


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two operations are tested, beside those that are given and the programs."""
    monkeypatch.setattr(suite, "OPERATIONS", ("torch.exp", "torch.matmul"))


def outcomes(executor: Executor, *patterns: str, **options: Any) -> dict[str, str]:
    """What the tests with such ids say: empty if they pass, the reason if they are skipped."""
    found = {}
    for case in executor_cases(executor, **options):
        if any(fnmatchcase(case.id, pattern) for pattern in patterns):
            try:
                case.check()
                found[case.id] = ""
            except (ConformanceFailure, NotApplicable) as outcome:
                found[case.id] = f"{type(outcome).__name__}: {outcome}"
    return found


@dataclass(frozen=True, eq=False)
class Changed(Pointwise):
    """A fusion executor that changes the results of its regions."""

    change: Callable[[torch.Tensor], torch.Tensor] = torch.clone

    def fuse(self, region: Trace) -> Any:
        run: Any = Pointwise.fuse(self, region)
        return lambda *inputs: tuple([self.change(result) for result in run(*inputs)])


@dataclass(frozen=True, eq=False)
class Silent(Pointwise):
    """A fusion executor that gives no reasons."""

    def can_fuse(self, bound: BoundSymbol) -> bool | str:
        return Pointwise.can_fuse(self, bound) is True


@pytest.mark.usefixtures("few")
@pytest.mark.slow
def test_right_fusion_executor_passes() -> None:
    found = outcomes(Pointwise(), "all-claims", "two_results-*", "views-*", "torch.exp-*", "writes-forward-*")
    assert not [text for text in found.values() if text]
    words = {name.split("-")[1] for name in found if name.startswith("two_results-")}
    assert words == {"memory", "forward", "gradient", "layouts", "shapes", "determinism"}
    assert "two_results-gradient-bfloat16-0" in found


@pytest.mark.usefixtures("few")
@pytest.mark.slow
def test_what_is_not_fused_is_skipped() -> None:
    found = outcomes(Pointwise(least=3), "torch.exp-forward-*", "pointwise_chain-forward-float32-*")
    assert found == {
        "torch.exp-forward-float32-0": "NotApplicable: not fused, because its region has 1 of 3 required operations",
        "pointwise_chain-forward-float32-0": "",
    }


DEFECTS: dict[str, tuple[Executor, str, str]] = {
    "value": (Changed(change=lambda x: x + 1), "two_results-forward-float32-0", "values"),
    "strides": (Changed(change=lambda x: x.mT.contiguous().mT), "two_results-forward-float32-0", "strides"),
    "dtype": (Changed(change=lambda x: x.double()), "torch.exp-forward-float32-0", "dtype"),
    "same memory": (Changed(change=lambda x: x.mul_(1)), "two_results-forward-float32-0", ""),
    "no reasons": (Silent(), "torch.matmul-claims", "decline reasons"),
    "nothing": (Pointwise(tags=frozenset()), "all-claims", "claimed"),
}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.slow
def test_defect_is_found(defect: str) -> None:
    executor, name, rule = DEFECTS[defect]
    (text,) = outcomes(executor, name).values()
    assert text.startswith("ConformanceFailure: ") == bool(rule)
    assert not rule or f"the rule of {rule} is broken" in text


@dataclass(frozen=True, eq=False)
class Activations(Executor):
    """Runs silu, by asking itself."""

    pair: DerivativePair
    name: str = "activations"

    def claim(self, bound: BoundSymbol) -> Decision:
        if bound.symbol.name == d.SILU and bound.args[0].dtype is torch.float32:
            return Claimed(self.name)
        return Declined(self.name, "it runs silu of float32")

    def derivative(self, bound: BoundSymbol) -> DerivativePair | None:
        return self.pair


@pytest.mark.slow
def test_executor_that_answers_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "OPERATIONS", ("torch.exp", d.SILU))
    right = Activations(DerivativePair(d.silu_forward, d.silu_backward))
    ids = {case.id.partition("-")[0] for case in executor_cases(right)}
    assert d.SILU in ids
    assert "torch.exp" not in ids
    found = outcomes(right, "all-claims", f"{d.SILU}-pair-float32-*", f"{d.SILU}-forward-float32-*", f"{d.SILU}-claims")
    assert not [text for text in found.values() if text]
    assert f"{d.SILU}-pair-float32-0" in found
    wrong = Activations(DerivativePair(d.silu_forward, d.wrong_gradient))
    (text,) = outcomes(wrong, f"{d.SILU}-pair-float32-0").values()
    assert "the rule of values is broken" in text


@pytest.mark.usefixtures("few")
@pytest.mark.slow
def test_operations_to_test_with() -> None:
    ids = {case.id.partition("-")[0] for case in executor_cases(Pointwise(), operations=[F.softplus, "torch.erf"])}
    assert {"torch.nn.functional.softplus", "torch.special.erf", "pointwise_chain"} - ids <= {"torch.special.erf"}
    assert any("erf" in name for name in ids)

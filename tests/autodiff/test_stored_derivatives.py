"""Derivatives and cuts on disk: what is found again, and what is not kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import thunder
from thunder_core.autodiff.derivatives import derive
from thunder_core.autodiff.derivatives.rules import add_rules, all_rules, remove_rules
from thunder_core.autodiff.partitioning import cut
from thunder_core.executors import disk_tables
from thunder_core.executors.disk_tables import save_tables


@pytest.fixture
def start_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Write what is to be kept, and forget what this process knows."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))

    def forget() -> None:
        assert save_tables() == []
        monkeypatch.setattr(disk_tables, "_tables", {})
        derive._cache.clear()

    monkeypatch.setattr(disk_tables, "_tables", {})
    forget()
    return forget


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the symbols whose derivative was found in this process."""
    names: list[str] = []
    for way in ("derive_by_rule", "derive_by_autograd"):
        own = getattr(derive, way)

        def counted(query: Any, own: Any = own) -> Any:
            names.append(query.bound.symbol.name)
            return own(query)

        monkeypatch.setattr(derive, way, counted)
    return names


CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rule": lambda x: (x * x).sum(0),
    "autograd": lambda x: F.softplus(x),
    "saves more than its result": lambda x: F.layer_norm(x, (4,)),
    "several results": lambda x: torch.var_mean(x, 0)[0],
    "views": lambda x: x.split(2, 1)[1].transpose(0, 1) * x[:2, :3],
    "random": lambda x: F.dropout(x, 0.5),
    "strides of cotangents": lambda x: x.exp().sum().expand(3),
    "one value twice": lambda x: torch.mul(x, x),
    "in place": lambda x: x.clone().mul_(2).relu_(),
    "constants": lambda x: x.clamp(-float("inf"), 0.5),
}


@pytest.mark.parametrize("case", CASES)
def test_derivatives_are_read_as_they_were_made(start_again: Callable[[], None], found: list[str], case: str) -> None:
    x = torch.randn(3, 4, requires_grad=True)

    def run(call: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(0)
        result = call(x)
        return result, *torch.autograd.grad(result, x, torch.ones_like(result))

    first = thunder.jit(CASES[case])
    torch.testing.assert_close(run(first), run(CASES[case]))
    assert found
    found.clear()
    start_again()
    second = thunder.jit(CASES[case])
    torch.testing.assert_close(run(second), run(CASES[case]), rtol=0, atol=0)
    assert found == []
    assert [str(trace) for trace in _programs(first)] == [str(trace) for trace in _programs(second)]
    assert _report(first) == _report(second)


def _programs(program: Any) -> list[Any]:
    return [*thunder.last_traces(program), *thunder.last_backward_traces(program)]


def _report(program: Any) -> Any:
    return thunder.explain(program).entries[0].training


def test_rules_of_others_are_not_kept(
    start_again: Callable[[], None], found: list[str], request: pytest.FixtureRequest
) -> None:
    """They may change under their names."""
    add_rules({"torch.sinh": lambda input: (torch.sinh(input), lambda g: g * torch.cosh(input))})
    request.addfinalizer(lambda: remove_rules(["torch.sinh"]))
    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        thunder.jit(torch.sinh)(x).sum().backward()
        start_again()
    assert found.count("torch.sinh") == 2


def test_a_rule_of_the_core_that_is_removed_is_not_read_and_that_of_autograd_is_not_kept(
    start_again: Callable[[], None], found: list[str], request: pytest.FixtureRequest
) -> None:
    rule = all_rules()["torch.matmul"]
    request.addfinalizer(lambda: all_rules().get("torch.matmul") or add_rules({"torch.matmul": rule}))
    x = torch.randn(3, 3, requires_grad=True)

    def source() -> str:
        program = thunder.jit(lambda x: torch.matmul(x, x), executors=[])
        program(x).sum().backward()
        start_again()
        return str(thunder.explain(program).training)

    assert "1 by a hand-written rule" in source()
    remove_rules(["torch.matmul"])
    for _ in range(2):
        assert "hand-written" not in source()
    add_rules({"torch.matmul": rule})
    assert "1 by a hand-written rule" in source()


def test_cuts_are_found_again(start_again: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    def graph(capacity: int) -> cut.Cut:
        made = cut.Cut()
        middle = [made.node() for _ in range(20)]
        made.edge(cut.SOURCE, middle[0], 7)
        for tail, head in pairwise(middle):
            made.edge(tail, head, capacity)
        made.edge(middle[-1], cut.SINK, cut.UNBOUNDED)
        return made

    first = graph(9).sink_side()
    assert first == {cut.SINK, *range(2, 22)}
    start_again()
    own = cut.Cut._reaching
    monkeypatch.setattr(cut.Cut, "_reaching", None)
    assert graph(9).sink_side() == first
    monkeypatch.setattr(cut.Cut, "_reaching", own)
    assert graph(5).sink_side() == {cut.SINK, 21}  # another question

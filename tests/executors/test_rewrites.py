"""Claims that rewrite an operation into others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
from thunder_core.errors import ExecutorWarning
from thunder_core.executors import Claim, OperatorExecutor
from thunder_core.executors.configured import ConfiguredExecutor

CALLS: list[str] = []


def silu_as_product(input: torch.Tensor) -> torch.Tensor:
    return input * torch.sigmoid(input)


def sigmoid(input: torch.Tensor) -> torch.Tensor:
    CALLS.append("sigmoid")
    return torch.sigmoid(input)


EXECUTOR = OperatorExecutor("mine", (Claim(F.silu, rewrite=silu_as_product), Claim(torch.sigmoid, sigmoid)))


@pytest.fixture(autouse=True)
def _fresh() -> None:
    CALLS.clear()


def test_what_a_rewrite_calls_is_offered_again() -> None:
    x = torch.randn(3, 4)
    program = thunder.jit(lambda x: F.silu(x) + F.silu(x * 2), executors=[EXECUTOR])
    torch.testing.assert_close(program(x), F.silu(x) + F.silu(x * 2))
    assert CALLS == ["sigmoid"] * 2
    names = [line.symbol.name for line in thunder.last_traces(program)[-1].symbols]
    assert "torch.nn.functional.silu" not in names


def test_gradients_are_those_of_what_is_called() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    program = thunder.jit(lambda x: F.silu(x).square().sum(), executors=[EXECUTOR])
    (actual,) = torch.autograd.grad(program(x), x)
    (expected,) = torch.autograd.grad(F.silu(x).square().sum(), x)
    torch.testing.assert_close(actual, expected)
    assert CALLS == ["sigmoid"]


def test_an_executor_above_keeps_what_one_below_would_rewrite() -> None:
    above = OperatorExecutor("above", (Claim(F.silu, lambda input: CALLS.append("silu") or F.silu(input)),))
    program = thunder.jit(lambda x: F.silu(x), executors=[above, EXECUTOR])
    program(torch.randn(3))
    assert CALLS == ["silu"]


def test_views_and_several_results() -> None:
    def unbind(input: Any, dim: int = 0) -> Any:
        return tuple(input.select(dim, index) for index in range(input.shape[dim]))

    executor = OperatorExecutor("mine", (Claim(torch.unbind, rewrite=unbind),))

    def function(x: torch.Tensor) -> Any:
        one, two = torch.unbind(x)
        one.add_(1)
        return one * two, x

    x, y = torch.ones(2, 3), torch.ones(2, 3)
    torch.testing.assert_close(thunder.jit(function, executors=[executor])(x), function(y))


@pytest.mark.parametrize(
    ("rewrite", "reason"),
    [
        (lambda input: input.double(), ": float64 [3] strides [1] on cpu instead of float32 [3]"),
        (lambda input: input, "returns one of its arguments"),
        (lambda input: input.no_such_method(), "does not run on fake tensors is the `run` of a claim"),
    ],
    ids=["dtype", "argument", "error"],
)
def test_wrong_rewrites_are_declined_with_the_reason(
    rewrite: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next executor runs the op after a warning; it is an error where that is configured."""
    monkeypatch.delenv("THUNDER_STRICT", raising=False)
    x = torch.randn(3)
    executor = OperatorExecutor("mine", (Claim(F.silu, rewrite=rewrite),))
    program = thunder.jit(lambda x: F.silu(x), executors=[executor])
    with pytest.warns(ExecutorWarning, match=r"mine declines torch.nn.functional.silu: its rewrite cannot be used"):
        torch.testing.assert_close(program(x), F.silu(x))
    ((name, given),) = thunder.explain(program).entries[0].decisions[0].declined
    assert name == "mine"
    assert reason in given
    strict = thunder.jit(lambda x: F.silu(x), executors=[ConfiguredExecutor(executor, on_decline="error")])
    with (
        pytest.warns(ExecutorWarning, match="declines"),
        pytest.raises(thunder.ExecutorError, match=r"mine declined torch.nn.functional.silu, because .*rewrite"),
    ):
        strict(x)
    monkeypatch.setenv("THUNDER_STRICT", "1")
    with pytest.raises(thunder.ExecutorError, match=r"mine: torch.nn.functional.silu: its rewrite cannot be used"):
        thunder.jit(lambda x: F.silu(x), executors=[executor])(x)


def test_rewrites_in_a_circle() -> None:
    executor = OperatorExecutor("mine", (Claim(F.silu, rewrite=lambda input: F.silu(input + 0)),))
    with pytest.raises(thunder.ExecutorError, match=r"mine rewrites torch.nn.functional.silu into itself"):
        thunder.jit(lambda x: F.silu(x), executors=[executor])(torch.randn(3))


@pytest.mark.parametrize("grad", [True, False])
def test_lines_of_checkpoint_regions_are_rewritten(grad: bool) -> None:
    """Before they are differentiated, as all others; and what they were rewritten to is computed again."""
    weight = torch.randn(3, 4, requires_grad=True)

    def region(x: torch.Tensor) -> torch.Tensor:
        x = x * weight
        x += 1
        return F.silu(x)

    def function(x: torch.Tensor) -> torch.Tensor:
        return checkpoint(region, x.sin(), use_reentrant=False).cos().sum()

    x = torch.randn(3, 4, requires_grad=grad)
    program = thunder.jit(function, executors=[EXECUTOR])
    expected = torch.autograd.grad(function(x), weight)
    torch.testing.assert_close(torch.autograd.grad(program(x), weight), expected)
    assert CALLS == ["sigmoid"] * 2
    backward = thunder.last_backward_traces(program)[-1]
    assert not [line for line in backward.symbols if "silu" in line.symbol.name]
    assert {proxy.name for proxy in backward.inputs} & {"weight", "x"}
    CALLS.clear()
    with torch.no_grad():
        torch.testing.assert_close(program(x), function(x))
    assert CALLS == ["sigmoid"]

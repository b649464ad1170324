"""Rules that are added, changed or removed after a program was compiled: the next call uses those of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder_core.autodiff.derivatives.rules import add_rules, all_rules, remove_rules

SYMBOL = "torch.sinh"


def rule_with(factor: float) -> Callable[..., Any]:
    """A rule of `torch.sinh` whose gradient is the cotangent times a number, to see which rule was used."""

    def sinh(input: torch.Tensor) -> Any:
        return torch.sinh(input), lambda g: g * factor

    return sinh


@pytest.fixture(autouse=True)
def rules_of_before() -> Iterator[None]:
    before = all_rules()
    yield
    remove_rules(all_rules().keys() - before.keys())
    assert dict(all_rules()) == dict(before)


def gradient(program: Any, x: torch.Tensor) -> torch.Tensor:
    (result,) = torch.autograd.grad(program(x).sum(), x)
    return result


def reasons(program: Any) -> list[str]:
    return [entry.reason for entry in thunder.explain(program).entries]


def test_a_rule_that_is_added_changed_and_removed_is_used_at_the_next_call() -> None:
    x = torch.randn(3, requires_grad=True)
    program = thunder.jit(lambda x: torch.sinh(x) * 2)
    of_autograd = gradient(program, x)
    torch.testing.assert_close(of_autograd, 2 * x.cosh())

    add_rules({SYMBOL: rule_with(3.0)})
    assert torch.equal(gradient(program, x), torch.full((3,), 6.0))
    remove_rules([SYMBOL])
    add_rules({SYMBOL: rule_with(5.0)})
    assert torch.equal(gradient(program, x), torch.full((3,), 10.0))
    assert thunder.cache_misses(program) == 3
    name = f"{__name__}.rule_with.<locals>.sinh"
    assert reasons(program) == [
        "it is the first call",
        f"derivative rules: expected none for {SYMBOL}, got {name} for {SYMBOL}",
        f"derivative rules: expected {name} for {SYMBOL}, got {name} for {SYMBOL}, another function",
    ]

    remove_rules([SYMBOL])  # the entry of the first call is valid again
    assert torch.equal(gradient(program, x), of_autograd)
    assert thunder.cache_misses(program) == 3


def test_a_program_that_is_compiled_later_does_not_use_the_cached_derivative_of_another_rule() -> None:
    x = torch.randn(3, requires_grad=True)
    gradient(thunder.jit(torch.sinh), x)
    add_rules({SYMBOL: rule_with(3.0)})
    assert torch.equal(gradient(thunder.jit(torch.sinh), x), torch.full((3,), 3.0))
    remove_rules([SYMBOL])
    assert torch.equal(gradient(thunder.jit(torch.sinh), x), x.cosh())


def test_programs_that_do_not_differentiate_the_symbol_are_not_compiled_again() -> None:
    x, constant = torch.randn(3, requires_grad=True), torch.randn(3)
    other, inference = thunder.jit(lambda x: torch.cosh(x)), thunder.jit(torch.sinh)
    gradient(other, x)
    inference(constant)
    add_rules({SYMBOL: rule_with(3.0)})
    gradient(other, x)
    inference(constant)
    assert (thunder.cache_misses(other), thunder.cache_misses(inference)) == (1, 1)


def test_a_backward_that_is_pending_uses_the_rule_of_its_forward() -> None:
    x = torch.randn(3, requires_grad=True)
    result = thunder.jit(torch.sinh)(x)
    add_rules({SYMBOL: rule_with(3.0)})
    (computed,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(computed, x.cosh())


def test_a_program_whose_guards_the_user_turned_off_is_compiled_again() -> None:
    """The user promises equal inputs, and says nothing about plugins."""
    x = torch.randn(3, requires_grad=True)
    program = thunder.jit(torch.sinh, cache="same input")
    gradient(program, x)
    add_rules({SYMBOL: rule_with(3.0)})
    assert torch.equal(gradient(program, x), torch.full((3,), 3.0))


def test_removing_a_rule_that_does_not_exist_removes_nothing() -> None:
    add_rules({SYMBOL: rule_with(3.0)})
    before = all_rules()
    with pytest.raises(KeyError, match=r"torch\.cosh"):
        remove_rules([SYMBOL, "torch.cosh"])
    assert all_rules() is before


def test_adding_the_same_rule_again_changes_nothing() -> None:
    rules = {SYMBOL: rule_with(3.0)}
    add_rules(rules)
    before = all_rules()
    add_rules(rules)
    assert all_rules() is before


@pytest.mark.parametrize("extra", [1, 2])
def test_a_rule_with_more_gradients_than_parameters_is_not_used(extra: int) -> None:
    """Nothing that a rule returns is dropped: autograd differentiates in its place, and the report has the reason."""

    def sinh(input: torch.Tensor) -> Any:
        return torch.sinh(input), lambda g: (g * 3, *[g] * extra)

    add_rules({SYMBOL: sinh})
    x = torch.randn(3, requires_grad=True)
    program = thunder.jit(torch.sinh)
    torch.testing.assert_close(gradient(program, x), x.cosh())
    assert f"it returns {1 + extra} gradients for 1 parameters" in str(thunder.explain(program).training)

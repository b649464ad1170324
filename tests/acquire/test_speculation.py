"""Programs recorded with the values that their Python reads, and lines that check them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.contract import AssumedValues, Request
from thunder_core.errors import DataDependentError, WrongGuess
from thunder_core.ir.program import compile_trace
from thunder_core.ir.symbol import Tag
from thunder_frontend.record.front_end import front_end


def branches(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def digits(x: torch.Tensor) -> torch.Tensor:
    return x * len(f"{x.sum().item():.0f}")


def writes_before(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x * 2 if x[0] > 1 else x * 3


def draws_before(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.rand(()) < 0.5 else x * 3


def converges(x: torch.Tensor) -> torch.Tensor:
    while x.abs().max() > 0.1:
        x = x / 2
    return x


def selects(x: torch.Tensor) -> torch.Tensor:
    return x[x > 1] * 2


PROGRAMS = (branches, digits, writes_before, draws_before, converges, selects)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_ops_do_what_eager_does(program: Callable[..., Any]) -> None:
    x = torch.tensor([1.0, 2.0])
    before, state = x.clone(), torch.get_rng_state()
    acquired = front_end.record(program, (x,), {}, Request(assumed_values=AssumedValues()))
    assert torch.equal(x, before)
    assert x._version == 0
    assert torch.equal(torch.get_rng_state(), state)
    assert any(Tag.GUESS in line.symbol.tags for line in acquired.trace.symbols)
    result, *_ = compile_trace(acquired.trace)(*acquired.inputs)  # behind it are sizes that lines define
    torch.set_rng_state(state)
    torch.testing.assert_close(result, program(before), rtol=0, atol=0)


def test_another_value_raises() -> None:
    run = compile_trace(front_end.record(branches, (torch.ones(2),), {}, Request(assumed_values=AssumedValues())).trace)
    with pytest.raises(WrongGuess) as caught:
        run(-torch.ones(2))
    assert caught.value.position == 0
    assert caught.value.actual is False


def test_without_speculation_it_is_refused() -> None:
    with pytest.raises(DataDependentError):
        front_end.record(branches, (torch.ones(2),), {})


def test_an_exception_after_a_bound_in_a_tensor() -> None:
    """Such a program is recorded again with constants, among them the bound."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x + x[: (x[:, 1] > 0).sum()].sum(0)
        raise KeyError(tuple(y.shape))

    compiled = thunder.jit(program)
    for rows in (2, 3):
        with pytest.raises(KeyError, match=f"{rows}, 2"):
            compiled(torch.ones(rows, 2))

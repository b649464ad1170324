"""Numbers that programs read from tensors: lines compute them, and only what needs the number itself is checked."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from tests.values.test_programs import WithSizes, assert_same, outcome

Program = Callable[[torch.Tensor], Any]
LOGGER = logging.getLogger(__name__)


def averaged(x: torch.Tensor) -> Any:
    total = 0.0
    for value in x:
        total += value.item()
    return x * total, total / len(x), -abs(total) + 2 * total - 1


def logged(x: torch.Tensor) -> torch.Tensor:
    LOGGER.warning("largest %s", x.max().item())
    print("largest", x.max().item())
    return x * 2


def written(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.mul_(x.sum().item())
    y -= x.max().item()
    return y


def of_both_kinds(x: torch.Tensor) -> Any:
    count, total = (x > 0).sum().item(), x.sum().item()
    return isinstance(count, int), isinstance(total, float), isinstance(count, float), count + total, count, [total]


ONE_PROGRAM: dict[str, Program] = {
    "scaled": lambda x: x * x.abs().max().item(),
    "returned": lambda x: (x * 2, x.sum().item(), (x > 0).sum().item()),
    "averaged": averaged,
    "logged": logged,
    "written": written,
    "of both kinds": of_both_kinds,
    "clamped": lambda x: x.clamp(max=x.mean().item()),
    "chosen": lambda x: torch.where(x > x.mean().item(), x, x.mean().item()),
    "on the left": lambda x: 2.0 - x.sum().item() * x + x.sum().item() / 2.0,
    "denominator": lambda x: x / (x.abs().sum().item() + 1.0) + 1.0 / (x + x.abs().max().item() + 9.0),
    "power": lambda x: x.abs() ** x.abs().max().item() + x.abs().max().item() ** x,
    "activation": lambda x: F.elu(x, x.abs().max().item()) + F.leaky_relu(x, x.abs().max().item()),
    "scale of a sum": lambda x: x.add(x * 2, alpha=1.0) * x.min().item(),
    "compared": lambda x: x * (2 if x.abs().sum().item() > -1 else 3),
    "not a number": lambda x: x * (3 if math.isnan(x.sum().item()) else 2),
    "attribute": lambda x: x * (3 if hasattr(x.sum().item(), "shape") else 2),
    "truth": lambda x: x * (2 if x.abs().sum().item() else 3),
}
"""Programs with one outcome for all numbers."""

BY_VALUE: dict[str, Program] = {
    "float": lambda x: x * float(x.sum()),
    "root": lambda x: x * math.sqrt(x.abs().sum().item()),
    "text": lambda x: (f"{x.sum().item():.2f}", x),
    "class": lambda x: x * (2 if type(x.sum().item()) is float else 3) * x.sum().item(),
    "name of a class": lambda x: (x * x.sum().item(), type(x.sum().item()).__name__, type(x.argmax().item()).__name__),
    "alpha": lambda x: x.add(x * 2, alpha=x.sum().item()),
    "denominator": lambda x: x * (1 / x.abs().sum().item()),
    "whole": lambda x: x * (x.sum().item() // 1) + x.sum().item() % 2 + divmod(x.sum().item(), 2)[0],
    "filled": lambda x: torch.full((4,), x.sum().item()) + torch.tensor(x.sum().item()) + x,
    "key": lambda x: x * {x.sum().item(): 2.0}[x.sum().item()],
    "rounded": lambda x: x * round(x.sum().item(), 1) + round(x.sum().item()),
    "product of a list": lambda x: x * math.prod([x.max().item(), 2.0]),
    "probability": lambda x: F.dropout(x, min(abs(x.sum().item()) / 100, 1.0)),
}
"""Programs that are compiled for each number, or may be."""

NUMBERS = [torch.arange(4.0) * factor / 7 - 0.3 for factor in range(1, 7)]


def check(program: Program, executors: tuple[Any, ...], *, training: bool, by_value: bool = False) -> int:
    """Compare with eager for all numbers; returns how many programs were compiled.

    Args:
        by_value: the program is compiled for each number, until eager runs it because none has recurred.
    """
    compiled = thunder.jit(program, executors=list(executors))
    for x in NUMBERS:
        assert_same(outcome(compiled, x, training=training), outcome(program, x, training=training))
    reasons = thunder.explain(compiled).fallbacks
    assert not reasons or (by_value and all("none of the values before has recurred" in reason for reason in reasons))
    return len(thunder.explain(compiled).entries)


@pytest.mark.parametrize("regions", [False, True], ids=["reference", "regions"])
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", ONE_PROGRAM)
@pytest.mark.battery
def test_one_program_for_all_numbers(name: str, training: bool, regions: bool) -> None:
    assert check(ONE_PROGRAM[name], (WithSizes(),) if regions else (), training=training) == 1


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", BY_VALUE)
@pytest.mark.battery
def test_what_needs_the_number_itself(name: str, training: bool) -> None:
    assert check(BY_VALUE[name], (), training=training, by_value=True) <= len(NUMBERS)


def test_outcomes_of_a_comparison_are_two() -> None:
    def limited(x: torch.Tensor) -> Any:
        total = x.sum().item()
        if total > 1:
            return x * total, total
        return x * 3, total + 1

    assert check(limited, (), training=False) == 2
    assert check(limited, ("inductor",), training=True) == 2


def test_a_number_kept_in_an_object() -> None:
    class History:
        last = 0.0

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            self.last = x.sum().item()
            return x * self.last

    compiled_history, history = History(), History()
    compiled = thunder.jit(compiled_history)
    for x in NUMBERS:
        torch.testing.assert_close(compiled(x), history(x))
        assert compiled_history.last == history.last
        assert type(compiled_history.last) is float


def test_a_number_that_leaves_unseen_is_refused() -> None:
    kept: deque[Any] = deque()
    append = kept.append

    def program(x: torch.Tensor) -> torch.Tensor:
        append(x.sum().item())
        return x * 2

    compiled = thunder.jit(program)
    try:
        compiled(NUMBERS[0])
    except thunder.LeakedTensorError as error:
        assert "test_numbers.py" in str(error)  # noqa: PT017 - either is right
    assert all(type(item) is float for item in kept)


def test_a_failure_that_the_program_catches_is_that_of_numbers() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return x.add(x, alpha=x.sum().item())
        except TypeError:
            return x * 0

    for x in NUMBERS:
        torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_a_saved_program_is_for_one_outcome(tmp_path: Any) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum() > 0 else x * 3

    compiled = thunder.jit(program)
    compiled(torch.ones(2))
    thunder.save_trace(compiled, tmp_path / "saved.py")
    saved = thunder.load_trace(tmp_path / "saved.py")
    torch.testing.assert_close(saved(torch.ones(2))[0], torch.full((2,), 2.0))
    with pytest.raises(thunder.DataDependentError, match="True, which now is False"):
        saved(-torch.ones(2))

"""Functions that are one op, and functions that backward calls, read what the program has changed before."""

from __future__ import annotations

import contextvars
import copy
import dataclasses
import itertools
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import UncacheableWarning


@dataclasses.dataclass
class State:
    factor: float = 1.0
    hidden: float = 1.0
    unrelated: float = 0.0
    factors: dict[str, float] = dataclasses.field(default_factory=lambda: {"of x": 1.0})
    steps: list[float] = dataclasses.field(default_factory=list)

    @property
    def computed(self) -> float:
        return self.hidden


class OfClass:
    factor = 1.0


GLOBAL = 1.0
CONTEXT = contextvars.ContextVar("CONTEXT", default=1.0)


@dataclasses.dataclass
class Outer:
    inner: State


state = State()
outer = Outer(state)
factors = state.factors


AS_OPERATORS = False
_number = itertools.count()


def scaling(read: Callable[[], float], factor: Callable[[], float] | None = None) -> Callable[[torch.Tensor], Any]:
    """A function that multiplies by what ``read`` returns, and gradients by ``factor``."""

    class Scaling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * read()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient * (factor or read)()

    @torch.library.custom_op(f"thunder_tests_changes::scale{next(_number)}", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        return x * read()

    operator.register_fake(torch.empty_like)
    operator.register_autograd(lambda ctx, gradient: gradient * (factor or read)())
    return lambda x: operator(x) if AS_OPERATORS else Scaling.apply(x)


by_attribute = scaling(lambda: state.factor)
by_property = scaling(lambda: state.computed)
by_name = scaling(lambda: getattr(state, "fac" + "tor"))
by_dictionary = scaling(lambda: vars(state)["factor"])
by_copy = scaling(lambda: copy.copy(state).factor)
by_library = scaling(lambda: dataclasses.astuple(state)[0])
by_library_inside = scaling(lambda: dataclasses.asdict(outer)["inner"]["factor"])
by_other_path = scaling(lambda: factors["of x"])
by_length = scaling(lambda: len(state.steps))
by_global = scaling(lambda: GLOBAL)
by_class = scaling(lambda: OfClass.factor)
by_environment = scaling(lambda: float(os.environ.get("THUNDER_TEST_FACTOR", "1")))
by_context = scaling(lambda: CONTEXT.get())


def attribute(x: torch.Tensor, n: float) -> Any:
    state.factor = n
    return by_attribute(x), by_name(x), by_dictionary(x), by_copy(x), by_library(x)


def attribute_inside(x: torch.Tensor, n: float) -> Any:
    state.factor = n
    return by_library_inside(x)


def hidden_attribute(x: torch.Tensor, n: float) -> Any:
    state.hidden = n
    return by_property(x)


def entry(x: torch.Tensor, n: float) -> Any:
    state.factors["of x"] = n
    return by_other_path(x)


def item(x: torch.Tensor, n: float) -> Any:
    state.steps.append(n)
    return by_length(x)


def global_variable(x: torch.Tensor, n: float) -> Any:
    global GLOBAL
    GLOBAL = n
    return by_global(x)


def class_attribute(x: torch.Tensor, n: float) -> Any:
    OfClass.factor = n
    return by_class(x)


def environment(x: torch.Tensor, n: float) -> Any:
    os.environ["THUNDER_TEST_FACTOR"] = str(n)
    return by_environment(x)


def context(x: torch.Tensor, n: float) -> Any:
    CONTEXT.set(n)
    return by_context(x)


def between_two_calls(x: torch.Tensor, n: float) -> Any:
    before = by_attribute(x)
    state.factor = n
    return before * 10 + by_attribute(x)


def attribute_in_backward(x: torch.Tensor, n: float) -> Any:
    y = by_attribute(x)
    state.factor = n
    return torch.autograd.grad(y.sum(), x)[0] + x


def attribute_in_a_hook(x: torch.Tensor, n: float) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: gradient * state.factor)
    state.factor = n
    return torch.autograd.grad(y.sum(), x)[0] + x


def restored(x: torch.Tensor, n: float) -> Any:
    state.factor = n
    y = by_attribute(x)
    state.factor = 1.0
    return y


def counted() -> float:
    state.steps.append(1.0)
    return 2.0


by_counted = scaling(lambda: 2.0, counted)


def changed_in_backward(x: torch.Tensor, n: float) -> Any:
    gradient = torch.autograd.grad(by_counted(x).sum(), x)[0]
    return (gradient + x) * len(state.steps)


EAGER = [
    attribute,
    attribute_inside,
    hidden_attribute,
    entry,
    item,
    global_variable,
    class_attribute,
    environment,
    context,
    between_two_calls,
    attribute_in_backward,
    attribute_in_a_hook,
    changed_in_backward,
    restored,
]


def unrelated_attribute(x: torch.Tensor, n: float) -> Any:
    state.unrelated = n
    return by_attribute(x)


def unrelated_item(x: torch.Tensor, n: float) -> Any:
    state.steps.append(n)
    return by_attribute(x)


def outcomes(run: Callable[[torch.Tensor, float], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.delenv("THUNDER_TEST_FACTOR", raising=False)
    monkeypatch.setattr(OfClass, "factor", 1.0)
    monkeypatch.setitem(globals(), "GLOBAL", 1.0)
    factors["of x"] = 1.0
    vars(state).update(vars(State()), factors=factors)
    found = []
    for n in (2.0, 3.0, 2.0, 5.0):
        x = torch.ones(2, requires_grad=True)
        results = run(x, n)
        (gradient,) = torch.autograd.grad(sum(result.sum() for result in torch.utils._pytree.tree_leaves(results)), x)
        found.append((results, gradient))
    return found


@pytest.mark.parametrize("as_operators", [False, True], ids=["function", "operator"])
@pytest.mark.parametrize("program", EAGER)
@pytest.mark.slow
def test_changes_before_are_read(program: Any, as_operators: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "AS_OPERATORS", as_operators)
    expected = contextvars.copy_context().run(outcomes, program, monkeypatch)
    with pytest.warns(UncacheableWarning, match="has changed|change objects|changes Python objects"):
        actual = contextvars.copy_context().run(outcomes, thunder.jit(program), monkeypatch)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize("as_operators", [False, True], ids=["function", "operator"])
@pytest.mark.parametrize("program", [unrelated_attribute, unrelated_item])
def test_programs_with_other_changes_stay_compiled(
    program: Any, as_operators: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "AS_OPERATORS", as_operators)
    compiled = thunder.jit(program)
    torch.testing.assert_close(outcomes(compiled, monkeypatch), outcomes(program, monkeypatch), rtol=0, atol=0)
    assert thunder.cache_misses(compiled) <= 2
    assert thunder.cache_hits(compiled) >= 2

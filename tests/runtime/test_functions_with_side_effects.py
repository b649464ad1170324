"""Functions that are one op of the trace and change Python objects: each call changes these as often as in eager."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder_core.errors import DataDependentError, UncacheableWarning

calls: list[int] = []


class Logging(torch.autograd.Function):
    """Appends the size of its argument to a list."""

    compute: Callable[[torch.Tensor], torch.Tensor]

    @classmethod
    def of(cls, compute: Callable[[torch.Tensor], torch.Tensor]) -> type[Logging]:
        return type("Logging", (cls,), {"compute": staticmethod(compute)})

    @classmethod
    def forward(cls, ctx: Any, x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape[0])
        return cls.compute(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


@torch.library.custom_op("thunder_tests::logs", mutates_args=())
def logs(x: torch.Tensor) -> torch.Tensor:
    calls.append(x.shape[0])
    return x * 2


def raises(x: torch.Tensor) -> torch.Tensor:
    raise KeyError("of the program")


def applied(compute: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], Any]:
    return Logging.of(compute).apply


def of_closure() -> Callable[[torch.Tensor], Any]:
    """The list is known by the closures of functions only, and the values are items of a tensor."""
    sizes = calls

    def note(x: torch.Tensor) -> None:
        sizes.append(int(x.isnan().logical_not().sum().item()))

    class InForward(torch.autograd.Function):
        @staticmethod
        def forward(x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            note(inputs[0])

        backward = Logging.backward

    return InForward.apply


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "plain": applied(lambda x: x * 2),
    "number": applied(lambda x: x * float(x.sum())),
    "mask": applied(lambda x: x[x > 0]),
    "covariance": applied(lambda x: x * torch.cov(x)),
    "raises": applied(raises),
    "closure": of_closure(),
    "operator": logs,
}


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.slow
def test_changes_are_made_once_in_each_call(name: str, constant: bool) -> None:
    function = FUNCTIONS[name]

    def program(x: torch.Tensor) -> Any:
        try:
            y = function(torch.ones(3) if constant else x)
        except KeyError:
            y = x - 1
        return y, len(calls)

    def outcomes(run: Callable[[torch.Tensor], Any]) -> list[Any]:
        calls.clear()
        return [(run(torch.full((3,), value))[1], len(calls)) for value in (1.0, 2.0)]

    compiled = thunder.jit(program)
    with pytest.warns(UncacheableWarning, match="changes Python objects"):
        assert outcomes(compiled) == outcomes(program) == [(1, 1), (2, 2)]


TOTAL = torch.zeros(())


def adds_to_a_total(x: torch.Tensor) -> torch.Tensor:
    TOTAL.add_(1)
    return x * 2


def logs_values(x: torch.Tensor) -> torch.Tensor:
    if type(x) is torch.Tensor:  # not while it is recorded
        calls.append(x.shape[0])
    return x * 2


EFFECTS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], str]] = {
    "tensor": (adds_to_a_total, "writes to a tensor that is not its argument"),
    "random": (lambda x: x * random.random(), "takes values from random"),
    "values": (logs_values, "changes Python objects, and a value is read after it"),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_effects_beside_the_tensors_happen_once_where_a_value_is_read_afterwards(name: str) -> None:
    compute, reason = EFFECTS[name]

    class Function(Adds):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return compute(x)

    def program(x: torch.Tensor) -> torch.Tensor:
        y = Function.apply(x)
        return y * 3 if y.sum() > 0 else y * 5

    def outcomes(run: Callable[[torch.Tensor], torch.Tensor]) -> list[Any]:
        random.seed(3)
        TOTAL.zero_()
        calls.clear()
        results = [run(torch.full((2,), value)).tolist() for value in (1.0, -1.0, 1.0)]
        return [results, TOTAL.item(), len(calls), random.random()]

    with pytest.warns(UncacheableWarning, match=reason):
        assert outcomes(thunder.jit(program)) == outcomes(program)


def test_functions_without_changes_stay_compiled() -> None:
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.factor = 2
            return x * ctx.factor

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            return gradients[0] * ctx.factor

    def program(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        calls.append(1)
        return Doubles.apply(x), len(calls)

    calls.clear()
    compiled = thunder.jit(program)
    assert [compiled(torch.ones(2))[1] for _ in range(2)] == [1, 2]
    assert thunder.cache_misses(compiled) >= 1


class Adds(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0]


SEEN: set[str] = set()


def adds_to_a_set(x: torch.Tensor) -> torch.Tensor:
    SEEN.add("a")
    return Adds.apply(x * 2)


def changes_the_environment(x: torch.Tensor) -> torch.Tensor:
    os.environ["THUNDER_TESTS_VARIABLE"] = "a value"
    return Adds.apply(x * 2)


def deletes_a_variable(x: torch.Tensor) -> torch.Tensor:
    scale = 2.0

    def change() -> torch.Tensor:
        nonlocal scale
        del scale
        y = Adds.apply(x)
        scale = 3.0
        return y * scale

    return change()


@pytest.mark.parametrize("program", [adds_to_a_set, changes_the_environment, deletes_a_variable])
def test_changes_of_the_program_are_not_those_of_its_functions(
    program: Callable[[torch.Tensor], torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("THUNDER_TESTS_VARIABLE", raising=False)
    compiled = thunder.jit(program)
    for value in (1.0, 2.0):
        SEEN.clear()
        os.environ.pop("THUNDER_TESTS_VARIABLE", None)
        x = torch.full((2,), value)
        assert torch.equal(compiled(x), program(x))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)
    assert not thunder.explain(compiled).fallbacks


class Router(torch.nn.Module):
    """Depends on values, returns a known shape, and appends to a list."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape[0])
        rows = (x.sum(1) > 0).nonzero().squeeze(1)
        y = torch.zeros_like(x)
        y[rows] = x[rows] * 2
        return y


class Routed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router()

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return self.router(x) + 1, len(calls)


def test_a_module_that_runs_on_samples_changes_objects_once() -> None:
    module, x = Routed(), torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    compiled = thunder.jit(module)
    calls.clear()
    for count in (1, 2):
        result, known = compiled(x)
        assert (known, len(calls)) == (count, count)
    assert torch.equal(result, module(x)[0])


class Scaled(torch.nn.Module):
    """Depends on values, returns a known shape, and reads an attribute."""

    scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = (x.sum(1) > 0).nonzero().squeeze(1)
        return torch.zeros_like(x).index_add(0, rows, x[rows] * self.scale)


def test_a_module_that_the_program_has_changed() -> None:
    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scaled = Scaled()

        def forward(self, x: torch.Tensor, scale: float) -> torch.Tensor:
            self.scaled.scale = scale
            return self.scaled(x)

    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0]])
    module, program = Program(), thunder.jit(Program())
    for scale in (2.0, 3.0, 2.0):
        assert torch.equal(program(x, scale), module(x, scale))


def test_a_module_that_runs_on_samples_and_changes_objects_is_refused_without_values() -> None:
    with pytest.raises(DataDependentError):
        thunder.jit(Routed(), sharp_edges="error")(torch.ones(2, 2))

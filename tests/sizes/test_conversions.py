"""``int(n)`` and ``float(n)`` of numbers that vary, sizes and tensors: one program, and the classes as in eager."""

from __future__ import annotations

import builtins
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

import thunder
from tests.sizes import numbers_by_type

Program = Callable[[torch.Tensor, float], Any]


def _numbers(x: torch.Tensor, m: float) -> Any:
    return x * float(m), x[: int(m)], torch.zeros(int(m) + 1, 2), float(m), int(m), float(int(m))


def _sizes(x: torch.Tensor, m: float) -> Any:
    n = x.shape[0]
    return x * float(n), torch.zeros(int(n), 2), x[: int(n * 0.7)], float(n) / 2, int(n) + 1, int(float(n))


def _tensors(x: torch.Tensor, m: float) -> Any:
    scale, count = float(x.mean()), int(x.long().argmax())
    return x * scale, torch.zeros(count + 2), x[count], scale, count, float(x.argmax()), int(x.sum() * m)


def _gradients(x: torch.Tensor, m: float) -> Any:
    y = (x.clone().requires_grad_() * float(m)).sin()
    (gradient,) = torch.autograd.grad(y.sum() / float(y.detach().norm()), y)
    return gradient


def _mapped(x: torch.Tensor, m: float) -> Any:
    return sum(map(float, [m, 1, 2.5])), list(map(int, ["1", "2"])), [float(value) for value in (m, x[0])]


def _classes(x: torch.Tensor, m: float) -> Any:
    y = float(m)
    kinds = isinstance(y, float), isinstance(int(m), int), isinstance(1.5, (int, float)), isinstance("a", float)
    return x * y, kinds, issubclass(bool, int), numpy.zeros(2, dtype=float).dtype, float, [int], str(float)


def _others(x: torch.Tensor, m: float) -> Any:
    return x * float(m), float("inf"), int("7", 8), float.fromhex("0x1p-1"), int.from_bytes(b"ab", "big")


def _matched(x: torch.Tensor, m: float) -> Any:
    match float(m):
        case float():
            return x * 2
        case _:
            return x


def _type_as_value(x: torch.Tensor, m: float) -> Any:
    def inner(kind: type[int]) -> int:
        return kind(1)

    return x * m, type(m) is float, inner(int), type(torch.Tensor) is type, type, isinstance(int, type)


def _metaclass(x: torch.Tensor, m: float) -> Any:
    class Meta(type):
        def __call__(cls, *args: Any) -> Any:
            return len(args)

    kind: Any = Meta("kind", (), {})
    facts = isinstance(kind, Meta), isinstance(int, Meta), issubclass(Meta, type), type(kind) is Meta, type(m) is float
    return x * m, kind(1, 2), facts, type("plain", (), {"one": 1})().one


ONE: tuple[Program, ...] = (
    _numbers,
    _sizes,
    _tensors,
    _gradients,
    _mapped,
    _classes,
    _others,
    _matched,
    numbers_by_type.types,
    numbers_by_type.types_of_items,
    numbers_by_type.created,
)


def _dtype(x: torch.Tensor, m: float) -> Any:
    return torch.zeros(3, dtype=float) * float(m)


def _caught_dtype(x: torch.Tensor, m: float) -> Any:
    try:
        y = torch.zeros(3, dtype=float)
    except TypeError:
        y = x
    return y, x * float(m)


def _by_type(x: torch.Tensor, m: float) -> Any:
    half, two = 1.5, 2
    return type(half) is float, {float: 1, int: 2}[type(two)], x * float(m)


def _refused(x: torch.Tensor, m: float) -> Any:
    errors: list[Any] = []
    for convert in (lambda: float(x), lambda: int(m * math.nan), lambda: int(m * math.inf)):
        try:
            errors.append(convert())
        except (RuntimeError, ValueError, OverflowError) as error:
            errors.append((type(error), str(error)))
    return errors, x * float(m)


MANY: tuple[Program, ...] = (_dtype, _caught_dtype, _by_type, _refused, _type_as_value, _metaclass)


def _assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            _assert_same(left, right)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other)
    else:
        assert one == other


@pytest.mark.filterwarnings("ignore::thunder_core.errors.RecompileWarning")
@pytest.mark.battery
@pytest.mark.parametrize("program", [*ONE, *MANY], ids=lambda program: program.__name__)
def test_as_eager(program: Program) -> None:
    compiled = thunder.jit(program, recompile_warning=100, executors=[])
    for index in range(12):
        x = torch.randn(4 + index, generator=torch.Generator().manual_seed(index)).abs()
        m = 2.25 + index / 8
        _assert_same(compiled(x, m), program(x, m))
        assert not {"int", "float", "type"} & {*globals(), *vars(numbers_by_type)}
        assert type(index) is builtins.int
    many = program in MANY or (program is _mapped and sys.version_info >= (3, 12))  # their comprehensions are inlined
    assert many or thunder.cache_misses(compiled) <= 3


def test_a_variable_that_shadows_the_class_later() -> None:
    namespace: dict[str, Any] = {"__name__": "shadowing"}
    exec("def program(x, m):\n    return x * float(m)\n", namespace)
    compiled, x = thunder.jit(namespace["program"]), torch.ones(2)
    for m in (0.5, 0.25, 0.75):
        assert torch.equal(compiled(x, m), x * m)
    namespace["float"] = lambda number: 3
    assert torch.equal(compiled(x, 0.5), x * 3)
    del namespace["float"]
    assert torch.equal(compiled(x, 0.125), x * 0.125)


@pytest.mark.slow
def test_a_scheduler_that_converts_its_metric() -> None:
    def steps(wrap: Callable[[Any], Any]) -> tuple[list[Any], Any]:
        parameter = torch.nn.Parameter(torch.arange(1.0, 4.0))
        optimizer = torch.optim.SGD([parameter], lr=0.5)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)

        def step(metric: float) -> None:
            optimizer.zero_grad()
            parameter.square().sum().backward()
            optimizer.step()
            scheduler.step(metric)

        compiled, results = wrap(step), []
        for index in range(20):
            compiled(1 / (1 + index % 7))
            results.append((parameter.tolist(), optimizer.param_groups[0]["lr"], scheduler.best))
        return results, compiled

    results, compiled = steps(lambda step: thunder.jit(step, executors=[], recompile_warning=100))
    assert results == steps(lambda step: step)[0]
    assert thunder.cache_misses(compiled) <= 8

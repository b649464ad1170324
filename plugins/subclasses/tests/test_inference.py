"""Wrapper subclasses as arguments, parameters, buffers and results, and made inside, against eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint
from wrapper_classes import (
    LOG,
    Factor,
    Logged,
    Quantized,
    QuantizedByFunction,
    assert_same,
    numbers,
    pair,
)

import thunder


def _made_inside(a: Tensor, b: Tensor) -> Any:
    made = TwoTensor(a.sin(), b.cos()).exp()
    return made, made.a + made.b


def _with_attributes(x: Any) -> Tensor:
    y = x * 2
    y.note = "a note"
    x.calls = 3
    return y


def _writes_inner(x: Any) -> Tensor:
    x.a.add_(1)
    return x * 2


def _replaces_inner(x: Any) -> Tensor:
    x.a = x.a * 2
    return x + 1


def _keeps(x: Any, kept: dict[str, Any]) -> Tensor:
    kept["wrapper"] = x * 3
    return kept["wrapper"].a


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "pointwise": (lambda x: torch.sin(x) * 2 + x, lambda seed: (pair(3, 4, seed=seed),)),
    "with a plain tensor": (lambda x, y: (x + y).relu(), lambda seed: (pair(3, seed=seed), numbers(3, seed=seed))),
    "products": (lambda x, w: x @ w.t(), lambda seed: (pair(3, 4, seed=seed), pair(5, 4))),
    "made inside": (_made_inside, lambda seed: (numbers(3, seed=seed), numbers(3))),
    "inside of another": (lambda x: x.sin() + 1, lambda seed: (TwoTensor(pair(3, seed=seed), pair(3)),)),
    "returned as it is": (lambda x: (x, x + 1), lambda seed: (pair(3, seed=seed),)),
    "returned twice": (lambda x: [x + 1] * 2, lambda seed: (pair(3, seed=seed),)),
    "written": (lambda x: x.mul_(2).add_(1), lambda seed: (pair(3, seed=seed),)),
    "inner tensor written": (_writes_inner, lambda seed: (pair(3, seed=seed),)),
    "inner tensor replaced": (_replaces_inner, lambda seed: (pair(3, seed=seed),)),
    "kept elsewhere": (_keeps, lambda seed: (pair(3, seed=seed), {})),
    "viewed": (lambda x: x.view(3, 4), lambda seed: (pair(2, 6, seed=seed),)),
    "view written": (lambda x: (x.view(-1).mul_(3), x + 1)[1], lambda seed: (pair(2, 3, seed=seed),)),
    "several": (lambda x: torch.cat(list(x.split(2))) + torch.stack([x, x]).sum(0), lambda seed: (pair(4, seed=seed),)),
    "attributes": (_with_attributes, lambda seed: (pair(3, seed=seed),)),
    "of a context": (lambda x: x.sin() + x, lambda seed: (Factor(numbers(3, seed=seed), 3),)),
    "a value decides": (lambda x, y: x * 2 if y.sum() > 0 else x + 1, lambda seed: (pair(3), numbers(3).abs())),
    "mapped": (lambda x: torch.vmap(torch.sin)(x), lambda seed: (pair(3, 2, seed=seed),)),
    "checkpoint": (lambda x: checkpoint(torch.sin, x, use_reentrant=False), lambda seed: (pair(3, seed=seed),)),
    "class asked": (lambda x: (isinstance(x + 1, TwoTensor), type(x).__name__, x.shape), lambda seed: (pair(3),)),
}


@pytest.mark.parametrize("executors", [[], None], ids=["reference", "default"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.battery
def test_as_in_eager(name: str, executors: Any) -> None:
    program, arguments = PROGRAMS[name]
    compiled = thunder.jit(program) if executors is None else thunder.jit(program, executors=executors)
    for seed in (0, 5, 9):
        given, own = arguments(seed), arguments(seed)
        expected, found = program(*given), compiled(*own)
        assert_same(found, expected)
        for one, other in zip(own, given, strict=True):
            assert_same(one, other)
            if isinstance(one, Tensor):
                assert vars(one).keys() == vars(other).keys()
        if isinstance(found, Tensor):
            assert vars(found).keys() == vars(expected).keys()
    assert thunder.cache_misses(compiled) == 1
    assert not thunder.explain(compiled).fallbacks


def test_what_is_returned_as_it_is_is_the_argument() -> None:
    x = pair(3)
    same, written = thunder.jit(lambda x: (x, x.add_(1)))(x)
    assert same is x
    assert written is x


def linear(kind: Any) -> nn.Linear:
    layer = nn.Linear(8, 4)
    nn.init.normal_(layer.weight)
    layer.weight = nn.Parameter(kind.of(layer.weight.detach()), requires_grad=False)
    return layer


@pytest.mark.parametrize("kind", [Quantized, QuantizedByFunction])
def test_quantized_weights(kind: Any) -> None:
    layer = linear(kind)
    compiled = thunder.jit(layer)
    with torch.no_grad():
        for seed in (0, 1):
            assert_same(compiled(numbers(2, 8, seed=seed)), layer(numbers(2, 8, seed=seed)))
    assert thunder.cache_misses(compiled) == 1
    assert "int_data" in str(thunder.last_traces(compiled)[0])


@pytest.mark.parametrize("kind", [Quantized, QuantizedByFunction])
def test_state_dicts_of_quantized_weights(kind: Any) -> None:
    layer, other = linear(kind), nn.Linear(8, 4)
    compiled = thunder.jit(layer)
    state = copy.copy(compiled.state_dict())
    assert type(state["weight"]) is kind
    other.load_state_dict(state, assign=True)
    with torch.no_grad():
        assert_same(thunder.jit(other)(numbers(2, 8)), compiled(numbers(2, 8)))
        layer.weight = nn.Parameter(kind.of(numbers(4, 8)), requires_grad=False)
        assert_same(compiled(numbers(2, 8)), layer(numbers(2, 8)))
    assert thunder.cache_misses(compiled) == 1


class Counted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", pair(3))

    def forward(self, x: Tensor) -> Tensor:
        self.total += x
        return self.total * 2


def test_buffers() -> None:
    compiled, module = thunder.jit(Counted()), Counted()
    for seed in (0, 1):
        assert_same(compiled(numbers(3, seed=seed)), module(numbers(3, seed=seed)))
        assert_same(compiled.total, module.total)


def test_what_dispatch_writes_to_python_objects_is_written_by_each_call() -> None:
    def program(x: Tensor) -> Tensor:
        return x.sin().sum()

    compiled, counts = thunder.jit(program), []
    for _ in range(3):
        LOG.clear()
        compiled(Logged(numbers(3)))
        counts.append(list(LOG))
    LOG.clear()
    program(Logged(numbers(3)))
    assert counts == [LOG] * 3
    assert thunder.cache_misses(compiled) == 1


def test_class_and_context_are_guarded() -> None:
    def program(x: Tensor) -> Tensor:
        return x + 1

    compiled = thunder.jit(program)
    given = [Factor(numbers(3), 2), Factor(numbers(3), 3), numbers(3), pair(3), TwoTensor(pair(3), pair(3))]
    for value in (*given, *reversed(given)):
        assert_same(compiled(value), program(value))
    assert thunder.cache_misses(compiled) == 5
    reasons = [entry.reason for entry in thunder.explain(compiled).entries]
    assert any("factor" in reason for reason in reasons)


def test_a_context_that_is_changed_in_place_is_noticed() -> None:
    def program(x: Tensor) -> Tensor:
        return x + 1

    compiled, value = thunder.jit(program), Factor(numbers(3), {"by": 2})
    for by in (2, 5, 2):
        value.factor["by"] = by
        assert_same(compiled(value), program(value))
    assert thunder.cache_misses(compiled) == 2


def test_explain_shows_the_guard() -> None:
    compiled = thunder.jit(lambda x: x * 2)
    compiled(pair(3))
    guards = thunder.explain(compiled).entries[0].guards
    assert any("tensor subclass TwoTensor torch.float32 (3,) of a, b" in guard for guard in guards)


@pytest.mark.parametrize("make", [lambda: pair(3, 4), lambda: numbers(3, 4)])
def test_autocast(make: Callable[[], Tensor]) -> None:
    def program(x: Tensor, weight: Tensor) -> Tensor:
        return nn.functional.linear(x, weight)

    compiled = thunder.jit(program)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(compiled(make(), pair(2, 4)), program(make(), pair(2, 4)))


def _attributes(x: Any) -> Any:
    y = x * 2
    y.notes, y.kind, y.sine = ["a", {"b": 1}], Factor, x.a.detach().sin()
    return y


def test_attributes_of_results() -> None:
    """The result has those that the program writes, of any kind, beside those of ``__tensor_unflatten__``."""
    for x in (pair(3, 4), pair(3, 4).requires_grad_()):
        expected, result = _attributes(x), thunder.jit(_attributes)(x)
        assert vars(result).keys() == vars(expected).keys()
        assert (result.notes, result.kind) == (expected.notes, expected.kind)
        torch.testing.assert_close(result.sine, expected.sine)


def test_views_without_gradients_of_what_requires_grad() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            return x.view(-1)

    x = pair(3, 4).requires_grad_()
    expected, result = program(x), thunder.jit(program)(x)
    assert_same(result, expected)
    assert (result.requires_grad, result.is_leaf) == (expected.requires_grad, expected.is_leaf)

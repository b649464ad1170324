"""Functions that a program makes and returns or stores: each call gives its own, over its own tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import nn

from thunder_core.errors import UnsupportedError


def closure(x):
    return lambda: x * 2


def closure_of_result(x):
    y = x + 1
    return lambda: y * 2


def default(x):
    return lambda y=x: y * 2


def keyword_default(x):
    def inner(*, y=x):
        return y * 2

    return inner


def attribute(x):
    def inner():
        return inner.y * 2

    inner.y = x
    return inner


def nested_closures(x):
    def outer():
        return (lambda: x * 2)()

    return outer


def bound_method(x):
    class Local:
        def __init__(self, x):
            self.x = x + 1

        def double(self):
            return self.x * 2

    return Local(x).double


def bound_builtin(x):
    return functools.partial(x.add, 1)


def partial(x):
    return functools.partial(torch.mul, x, 2)


def wrapped(x):
    def inner():
        return x * 3

    @functools.wraps(inner)
    def outer():
        return inner() + 1

    return outer


PROGRAMS = [
    closure,
    closure_of_result,
    default,
    keyword_default,
    attribute,
    nested_closures,
    bound_method,
    bound_builtin,
    partial,
    wrapped,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_each_call_has_its_own(jit, program):
    compiled = jit(program)
    made = [(program(torch.tensor(value)), compiled(torch.tensor(value))) for value in (1.0, 2.0, 3.0)]
    for expected, function in made:
        assert torch.equal(function(), expected())
        assert getattr(function, "__name__", None) == getattr(expected, "__name__", None)


def test_in_containers(jit):
    def program(x):
        return {"double": lambda: x * 2, "list": [lambda: x + 1]}

    compiled = jit(program)
    for value in (1.0, 2.0, 3.0):
        result = compiled(torch.tensor(value))
        assert (result["double"]().item(), result["list"][0]().item()) == (value * 2, value + 1)


def test_stored_in_a_module(jit):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.last: Callable[[], torch.Tensor] | None = None

        def forward(self, x):
            self.last = lambda: x * 2
            return x + 1

    module = Model()
    compiled = jit(module)
    for value in (1.0, 2.0, 3.0):
        compiled(torch.tensor(value))
        assert module.last().item() == value * 2


def test_shared_variables(jit):
    def program(x):
        count = 0

        def add():
            nonlocal count
            count += 1

        return add, lambda: x * count

    compiled = jit(program)
    pairs = [compiled(torch.tensor(value)) for value in (1.0, 2.0, 3.0)]
    pairs[1][0]()
    assert [read().item() for _, read in pairs] == [0.0, 2.0, 0.0]


def test_variables_of_functions_that_existed(jit):
    state = 1.0

    def program(x):
        return lambda: x * state

    compiled = jit(program)
    first, second = compiled(torch.tensor(1.0)), compiled(torch.tensor(2.0))
    state = 5.0
    assert (first().item(), second().item()) == (5.0, 10.0)


def test_recursive_functions(jit):
    def program(x):
        def power(n):
            return x if n == 1 else x * power(n - 1)

        return power

    compiled = jit(program)
    for value in (1.0, 2.0, 3.0):
        assert compiled(torch.tensor(value))(3).item() == value**3


def test_objects_that_existed_are_those_of_the_call(jit):
    def program(function, module, x):
        return function, module, module(x)

    compiled = jit(program)
    for _ in range(3):
        function, module = (lambda: 0), nn.Linear(2, 2)
        result = compiled(function, module, torch.ones(2))
        assert result[0] is function
        assert result[1] is module


def test_a_class_with_a_tensor_of_the_call_is_refused(jit):
    def program(x):
        class Local:
            held = x

        return Local

    with pytest.raises(UnsupportedError, match="holds a tensor of the call"):
        jit(program)(torch.ones(2))


def test_a_cached_function_is_refused(jit):
    def program(x):
        return functools.lru_cache(lambda: x * 2)

    with pytest.raises(UnsupportedError, match="cannot be rebuilt"):
        jit(program)(torch.ones(2))

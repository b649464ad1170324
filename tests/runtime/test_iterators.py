"""Iterators from outside of a program: each call takes the next value."""

from __future__ import annotations

import itertools
import re

import pytest
import torch

pytestmark = pytest.mark.filterwarnings("ignore::thunder_core.errors.UncacheableWarning")


def numbers():
    value = 0.0
    while True:
        value += 1
        yield value


MADE = {
    "generator": numbers,
    "expression": lambda: (a * b for a, b in zip(range(9), range(9))),
    "map": lambda: map(float, range(9)),
    "filter": lambda: filter(None, range(9)),
    "zip": lambda: map(sum, zip(range(9), numbers())),
    "chain": lambda: itertools.chain([1, 2], [3, 4, 5]),
    "chain of generator": lambda: itertools.chain(numbers()),
    "starmap": lambda: itertools.starmap(max, itertools.product(range(3), range(3))),
    "pairwise": lambda: map(max, itertools.pairwise(range(9))),
    "takewhile": lambda: itertools.takewhile(lambda value: value < 9, numbers()),
    "accumulate": lambda: itertools.accumulate(itertools.repeat(2)),
    "call until": lambda: iter(numbers().__next__, 99.0),
    "matches": lambda: map(len, map(re.Match.group, re.finditer(r"\d+", "1 22 333 4444 55555"))),
    "list": lambda: iter([1.0, 2.0, 3.0, 4.0, 5.0]),
    "dictionary": lambda: iter({1: 1, 2: 2, 3: 3, 4: 4, 5: 5}),
    "count": itertools.count,
    "cycle": lambda: itertools.cycle([1.0, 2.0, 3.0]),
    "islice": lambda: itertools.islice(numbers(), 9),
    "tee": lambda: itertools.tee(numbers())[0],
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.slow
def test_each_call_takes_the_next_value(jit, name):
    expected, iterator = MADE[name](), MADE[name]()
    compiled = jit(lambda x: x * next(iterator))
    for _ in range(5):
        assert compiled(torch.ones(2)).tolist() == [next(expected)] * 2


def test_iterators_that_stay_where_they_are_do_not_prevent_reuse(check):
    generator, values, far = numbers(), map(float, range(9)), iter([1.0] * 999)
    assert next(itertools.islice(far, 600, None)) == 1
    check(lambda x: x * 2 if None not in (generator, values, far) else x, lambda: (torch.randn(2),))

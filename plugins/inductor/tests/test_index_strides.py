"""Strides of indices, against what Inductor finds with SymPy."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import sympy
from torch._inductor import sizevars
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from thunder_plugin_inductor.index_strides import coefficient

if not hasattr(sizevars, "stride_at_vec_range"):
    pytest.skip("this PyTorch has no such function", allow_module_level=True)

X, Y, Z = (sympy.Symbol(name, integer=True, nonnegative=True) for name in "xyz")


def index_of(seed: int) -> Any:
    """A sum as Inductor makes them."""
    choose = random.Random(seed)
    terms = [
        choose.choice([1, 3, 64])
        * choose.choice([X, Y, FloorDiv(X, choose.choice([8, 16, 64, 3])), ModularIndexing(Y, 1, 7), FloorDiv(Z, 2),
                         ModularIndexing(X, choose.choice([1, 16, 48]), choose.choice([16, 32, 12])), sympy.S.One])
        for _ in range(choose.randint(1, 4))
    ]  # fmt: skip
    return sum(terms, sympy.S.Zero)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.battery
def test_what_is_read_off_is_right(seed: int) -> None:
    index = index_of(seed)
    for variable, vec_length in itertools.product((X, Y, Z), (None, 16)):
        known = coefficient(index, variable, vec_length)
        if known is not None:
            assert known == sizevars.stride_at_vec_range(index, variable, vec_length), (index, variable, vec_length)


@pytest.mark.parametrize(
    ("index", "vec_length", "expected"),
    [
        (64 * X + Y + FloorDiv(Y, 8), None, 64),
        (FloorDiv(X, 32) + 2 * ModularIndexing(X, 1, 64), 16, 2),
        (FloorDiv(X, 32) + 2 * ModularIndexing(X, 1, 64), None, None),
        (ModularIndexing(X, 16, 4) + Y * Z, 16, 0),
        (FloorDiv(X, 8), 16, None),
        (X * Y, 16, None),
        (Y + 5, 16, 0),
    ],
)
def test_which_are_read_off(index: Any, vec_length: int | None, expected: int | None) -> None:
    assert coefficient(index, X, vec_length) == expected

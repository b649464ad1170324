"""The comparison with eager that the tests of this folder share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from tests.subjects import SUBJECT, hit_counter
from thunder_testing import Comparison, assert_same_behaviour


@pytest.fixture
def check() -> Callable[..., None]:
    """``check(function, make_arguments)``: same behaviour as eager, and a cache hit at the second call."""
    return functools.partial(assert_same_behaviour, compile=SUBJECT, cache_hits=hit_counter(SUBJECT))


@pytest.fixture
def check_gradients(check: Callable[..., None]) -> Callable[..., None]:
    """As ``check``, with a backward pass after each call."""
    return functools.partial(check, comparison=Comparison(gradients=True))


@pytest.fixture
def jit() -> Callable[[Any], Any]:
    """The compiler under test."""
    return SUBJECT

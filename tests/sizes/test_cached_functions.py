"""Functions of ``functools.lru_cache`` that get, compute or return numbers that vary between calls.

Their caches outlive the recording, so they must not get its symbols.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder

OPTIONS = SimpleNamespace(scale=2.0)
BODIES: dict[str, Callable[[int], Any]] = {
    "computed": lambda size: size * 2,
    "returned": lambda size: size,
    "in containers": lambda size: (size + 1, [size]),
    "float": lambda size: float(size) * 1.5,
    "attribute": lambda size: size * OPTIONS.scale,
    "attribute alone": lambda size: OPTIONS.scale,
}


@pytest.mark.parametrize("name", BODIES)
def test_caches_get_plain_numbers(name: str) -> None:
    cached = functools.lru_cache(BODIES[name])

    def program(x: torch.Tensor) -> torch.Tensor:
        number = cached(x.shape[0])
        return x * (number[0] if isinstance(number, tuple) else number)

    compiled = thunder.jit(program)
    for size, scale in ((3, 2.0), (4, 3.0), (5, 4.0)):
        OPTIONS.scale = scale
        x = torch.ones(size)
        assert torch.equal(compiled(x), program(x))  # of the cache, which may have a result of an earlier scale
        cached.cache_clear()
        actual = compiled(x)
        kept = cached(size)
        assert torch.equal(actual, program(x))
        assert type(kept) in (int, float, tuple)
        assert repr(kept) == repr(BODIES[name](size))

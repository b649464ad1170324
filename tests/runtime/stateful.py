"""Programs with Python state: run several times, with changes between the calls, compiled and in eager PyTorch.

A program is a generator function of ``wrap``, which compiles a function or returns it as it is. What it yields is
described with the identities of objects, and must be the same in both.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import torch

from thunder_testing.seeding import seed_generators

Wrap = Callable[[Any], Any]
Program = Callable[[Wrap], Iterator[Any]]


class Box:
    """An object without ``__eq__``."""

    def __init__(self, n: Any = 0) -> None:
        self.n = n


def describe(value: Any, seen: dict[int, int]) -> Any:
    """``value`` as plain data; objects that came before are references, so that aliasing is compared."""
    if isinstance(value, bool | int | float | str | bytes | type(None)):
        return type(value).__name__, repr(value)
    if isinstance(value, type):
        return "class", value.__qualname__
    if id(value) in seen:
        return "seen", seen[id(value)]
    seen[id(value)] = len(seen)
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        return kind, str(value.dtype), value.requires_grad, value.is_leaf, value.tolist()
    if isinstance(value, dict):
        return kind, [(describe(key, seen), describe(item, seen)) for key, item in value.items()]
    if isinstance(value, list | tuple | collections.deque):
        return kind, [describe(item, seen) for item in value]
    if isinstance(value, set | frozenset):
        return kind, sorted(str(describe(item, seen)) for item in value)
    if callable(value):
        return kind, getattr(value, "__name__", "")
    return kind, describe(vars(value), seen) if hasattr(value, "__dict__") else None


def outcomes(program: Program, wrap: Wrap) -> list[Any]:
    """What the program yields, described."""
    seed_generators(0)
    alive = []  # so that identities stay unique
    described = []
    for item in program(wrap):
        alive.append(item)
        described.append(describe(item, {}))
    return described

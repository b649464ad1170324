"""How a program is recorded this time: an attempt that fails may tell how the next one has to differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

Key = int | type[torch.nn.Module]


@dataclass(frozen=True)
class Attempt:
    """What one recording of a program does otherwise than the first.

    Attributes:
        graph: whether fakes have the autograd graph of the program: each call is inferred then, not equal ones once.
        eager_modules: modules whose calls are recorded as one line, by `key_of`.
        eager_updates: functions of optimizers whose calls are recorded as one line.
    """

    graph: bool = False
    eager_modules: frozenset[Key] = frozenset()
    eager_updates: frozenset[Callable[..., None]] = frozenset()


def key_of(module: torch.nn.Module) -> Key:
    """What is called eagerly together: all modules of a user's class, or one module of a class of PyTorch's."""
    kind = type(module)
    return id(module) if kind.__module__.startswith("torch.") else kind
